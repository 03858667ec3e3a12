//! The bits of the CUDA kernels, run on the processor, are the CPU twins': every table of cases of the root crate.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod checking;

use blueshift::gpu::Gpu;
use blueshift::gpu::cases::{run_case_tables, run_random_settings};
use blueshift_native_cuda::Emulator;
use checking::check;

fn device() -> Gpu {
    Gpu::new(Emulator::open().expect("the kernels compile"))
}

#[test]
fn kernels_give_the_twins_bits() {
    check(&pollster::block_on(run_case_tables(&device())).expect("the device runs every case"));
}

#[test]
fn draws_are_the_twins() {
    let table = [(2, 100), (128, 400), (1000, 300), (4099, 280), (49_152, 6), (262_144, 3)];
    let mut results = Vec::new();
    pollster::block_on(run_random_settings(&device(), &table, &mut results)).expect("the device runs every case");
    // Every third setting is drawn with a mask, too.
    assert_eq!(results.len(), table.iter().map(|(_, draws)| draws + draws.div_ceil(3)).sum::<usize>());
    check(&results);
}
