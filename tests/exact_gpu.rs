//! The shared WGSL functions against their Rust twins on a real device: equality of bits over a million inputs each.
#![cfg(not(target_arch = "wasm32"))]

mod common;

use blueshift::numerics::{self, philox};
use wgpu::util::DeviceExt;

/// Inputs a function; a multiple of the workgroup's size.
const N: usize = 1 << 20;
const WORKGROUP: u32 = 256;

const PROLOGUE: &str = "
struct Params { zero: u32, op: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> input: array<u32>;
@group(0) @binding(2) var<storage, read_write> output: array<u32>;
";

/// A function's name, its WGSL from `x` (f32) or `bits` (u32) to u32, and its Rust twin from bits to bits.
type Case = (&'static str, &'static str, fn(u32) -> u32);

macro_rules! float_case {
    ($name:ident) => {
        (stringify!($name), concat!("bitcast<u32>(", stringify!($name), "(x))"), |bits| {
            numerics::$name(f32::from_bits(bits)).to_bits()
        })
    };
}

const CASES: [Case; 19] = [
    float_case!(exact_recip),
    float_case!(exact_rsqrt),
    float_case!(exact_exp2),
    float_case!(exact_exp),
    float_case!(exact_ln),
    float_case!(exact_sigmoid),
    float_case!(exact_silu),
    float_case!(exact_gelu_tanh),
    float_case!(exact_gelu_erf),
    float_case!(exact_softplus),
    float_case!(exact_tanh),
    ("flush_small", "bitcast<u32>(flush_small(x))", |b| numerics::flush_small(f32::from_bits(b)).to_bits()),
    ("round_sig 11", "bitcast<u32>(round_sig(x, 11u))", |b| numerics::round_sig(f32::from_bits(b), 11).to_bits()),
    ("round_sig 12", "bitcast<u32>(round_sig(x, 12u))", |b| numerics::round_sig(f32::from_bits(b), 12).to_bits()),
    ("round_sig 16", "bitcast<u32>(round_sig(x, 16u))", |b| numerics::round_sig(f32::from_bits(b), 16).to_bits()),
    ("to_f16_bits", "to_f16_bits(x)", |b| numerics::to_f16(f32::from_bits(b)).into()),
    ("is_finite_bits", "u32(is_finite_bits(x))", |b| numerics::is_finite_bits(f32::from_bits(b)).into()),
    ("gumbel_of", "bitcast<u32>(gumbel_of(bits))", |b| philox::gumbel_of(b).to_bits()),
    ("gumbel", "bitcast<u32>(gumbel(vec2<u32>(0x9abcdef0u, 0x12345678u), bits >> 7u, 3u, bits))", |b| {
        numerics::gumbel(0x1234_5678_9abc_def0, b >> 7, 3, b).to_bits()
    }),
];

/// Random bits, dense stretches where the functions do something, and every edge.
fn inputs() -> Vec<u32> {
    let stretches: [(f32, f32); 6] =
        [(-110.0, 110.0), (-12.0, 12.0), (-1.0, 1.0), (0.5, 2.0), (-130.0, -80.0), (-1e-3, 1e-3)];
    let edges = [0.0, 1.0, 2f32.powi(-126), 2f32.powi(126), 128.0, 126.0, 88.72283, 87.33654, 20.0, 104.0, 0.625]
        .into_iter()
        .chain([f32::INFINITY, f32::NAN, f32::MAX, 65504.0, 65520.0, 2f32.powi(-14), 2f32.powi(-30), 14.0, 10.0]);
    let mut bits: Vec<u32> = edges
        .flat_map(|x| {
            let b = x.to_bits();
            [b.saturating_sub(2), b.saturating_sub(1), b, b + 1, b + 2].into_iter().flat_map(|b| [b, b | 1 << 31])
        })
        .chain((0..64).flat_map(|i| [i, i | 1 << 31, u32::MAX - i]))
        .collect();
    for (lo, hi) in stretches {
        bits.extend((0..100_000).map(|i| (lo + (hi - lo) * (i as f32 / 100_000.0)).to_bits()));
    }
    let random = (0u32..).map(|i| philox::random_word(1, i, 0, i));
    bits.extend(random.take(N - bits.len()));
    bits
}

struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
}

impl Gpu {
    /// The first adapter; none only where there is none.
    fn open() -> Option<Self> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = pollster::block_on(instance.request_adapter(&Default::default())).ok()?;
        println!("device: {:?}", adapter.get_info());
        let (device, queue) = pollster::block_on(adapter.request_device(&Default::default())).expect("a device");
        Some(Self { device, queue })
    }

    fn pipeline(&self, source: &str) -> wgpu::ComputePipeline {
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(source.into()),
        });
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        })
    }

    /// What the pipeline makes of `input`, as `op`.
    fn run(&self, pipeline: &wgpu::ComputePipeline, op: u32, input: &[u32]) -> Vec<u32> {
        let buffer = |contents: &[u32], usage| {
            let contents = bytemuck::cast_slice(contents);
            self.device.create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents, usage })
        };
        let params = buffer(&[0, op, 0, 0], wgpu::BufferUsages::UNIFORM);
        let source = buffer(input, wgpu::BufferUsages::STORAGE);
        let target = buffer(input, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
        let read = buffer(input, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let entries: Vec<_> = [&params, &source, &target]
            .into_iter()
            .enumerate()
            .map(|(i, b)| wgpu::BindGroupEntry { binding: i as u32, resource: b.as_entire_binding() })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(input.len() as u32 / WORKGROUP, 1, 1);
        }
        encoder.copy_buffer_to_buffer(&target, 0, &read, 0, target.size());
        self.queue.submit([encoder.finish()]);
        read.map_async(wgpu::MapMode::Read, .., |result| result.expect("the buffer maps"));
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device finishes");
        let view = read.get_mapped_range(..).expect("the buffer is mapped");
        bytemuck::cast_slice(&view).to_vec()
    }
}

fn source() -> String {
    let arms: String =
        CASES.iter().enumerate().map(|(i, (_, wgsl, _))| format!("case {i}u: {{ y = {wgsl}; }}\n")).collect();
    format!(
        "{PROLOGUE}{}{}
@compute @workgroup_size({WORKGROUP})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let bits = input[id.x];
    let x = bitcast<f32>(bits);
    var y = 0u;
    switch params.op {{
        {arms}
        default: {{}}
    }}
    output[id.x] = y;
}}",
        include_str!("../shaders/shared/exact.wgsl"),
        include_str!("../shaders/shared/philox.wgsl"),
    )
}

#[test]
fn device_and_cpu_agree_bit_for_bit() {
    let Some(gpu) = Gpu::open() else {
        common::ignored("no GPU adapter");
        return;
    };
    let input = inputs();
    let pipeline = gpu.pipeline(&source());
    let mut failures = Vec::new();
    for (op, (name, _, twin)) in CASES.iter().enumerate() {
        let output = gpu.run(&pipeline, op as u32, &input);
        let different: Vec<_> = input.iter().zip(&output).filter(|&(&x, &y)| twin(x) != y).collect();
        if let Some(&(&x, &y)) = different.first() {
            failures.push(format!(
                "{name}: {} of {N} differ, first at {x:#010x} ({:e}): {y:#010x}, expected {:#010x}",
                different.len(),
                f32::from_bits(x),
                twin(x)
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
