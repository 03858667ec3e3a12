//! The order of a page's keys and values on the device: that of `shaders/shared/kv_store_*.wgsl`, which lanes write and read side by side.

use crate::plan::{KV_BLOCK, KvShape, KvType, PAGE};

/// Keys or values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Keys,
    Values,
}

/// Both, in the order of a page's bytes.
pub(crate) const SIDES: [Side; 2] = [Side::Keys, Side::Values];

/// Neighbouring bytes that are neighbours in both orders.
struct Piece {
    device: usize,
    host: usize,
    len: usize,
}

/// The pieces of a page, in the device's order.
fn pieces(shape: KvShape, side: Side) -> Vec<Piece> {
    let KvShape { n_kv_heads, head_dim, kv } = shape;
    let mut pieces = Vec::new();
    let mut device = 0;
    let mut push = |host, len| {
        pieces.push(Piece { device, host, len });
        device += len;
    };
    let bytes_a_value = if kv == KvType::F16 { 2 } else { 1 };
    for head in 0..n_kv_heads {
        let at = |slot: usize, dim: usize| ((head * PAGE + slot) * head_dim + dim) * bytes_a_value;
        match side {
            Side::Keys => {
                for group in 0..head_dim / 8 {
                    (0..PAGE).for_each(|slot| push(at(slot, 8 * group), 8 * bytes_a_value));
                }
            }
            Side::Values => push(at(0, 0), PAGE * head_dim * bytes_a_value),
        }
        if kv == KvType::Q8_0 {
            let blocks = head_dim / KV_BLOCK;
            for block in 0..blocks {
                let scale = |slot: usize| ((head * PAGE + slot) * blocks + block) * 2;
                (0..PAGE).for_each(|slot| push(shape.page_len() + scale(slot), 2));
            }
        }
    }
    pieces
}

/// A page's keys or values in the hosts' order (see [`KvShape`]).
pub(crate) fn to_host(shape: KvShape, side: Side, device: &[u8]) -> Vec<u8> {
    let mut host = vec![0; device.len()];
    for piece in pieces(shape, side) {
        host[piece.host..][..piece.len].copy_from_slice(&device[piece.device..][..piece.len]);
    }
    host
}

/// The opposite of [`to_host`].
pub(crate) fn to_device(shape: KvShape, side: Side, host: &[u8]) -> Vec<u8> {
    let mut device = vec![0; host.len()];
    for piece in pieces(shape, side) {
        device[piece.device..][..piece.len].copy_from_slice(&host[piece.host..][..piece.len]);
    }
    device
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back() {
        for kv in KvType::ALL {
            let shape = KvShape { n_kv_heads: 2, head_dim: 96, kv };
            let bytes: Vec<u8> = (0..shape.page_bytes()).map(|i| (i * 31 % 251) as u8).collect();
            for side in SIDES {
                let device = to_device(shape, side, &bytes);
                assert!(to_host(shape, side, &device) == bytes, "{kv:?} {side:?}");
                assert!(device != bytes || (kv == KvType::F16 && side == Side::Values), "{kv:?} {side:?}");
            }
        }
    }
}
