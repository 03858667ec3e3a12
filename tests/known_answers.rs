//! The table that `wasm.rs` compares a browser with, computed by this machine.
#![cfg(not(target_arch = "wasm32"))]

mod wasm_answers;

use wasm_answers::{ANSWERS, answer};

#[test]
fn this_machine_gives_the_known_answers() {
    let found = ANSWERS.map(|(kind, _)| (kind, pollster::block_on(answer(kind)).expect("the micro models run")));
    let shown = found.map(|(kind, hash)| format!("(QuantType::{kind:?}, {hash:#x})")).join(",\n    ");
    assert_eq!(found, ANSWERS, "the answers are\n    {shown}");
}
