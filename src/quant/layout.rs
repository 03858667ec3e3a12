//! The planes of a matrix: row strides, repacking file rows, reading rows back.

use super::codec::{BlockMut, BlockRef, Codec, Decode, codec};
use super::{QuantType, f16_at};
use crate::numerics::segments::Segments;

/// Where the parts of a matrix row lie in its planes (docs/numerics.md, "Planes"). Strides are bytes a row, 0 where the
/// type has no such plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneLayout {
    /// Element type of the file.
    pub kind: QuantType,
    /// Weights a row.
    pub k: usize,
    /// How the row's blocks of 32 are split and ordered.
    pub segments: Segments,
    /// Bytes a row of the `quants` plane, a multiple of 16.
    pub quants_stride: usize,
    /// Bytes a row of the `high` plane, a multiple of 4.
    pub high_stride: usize,
    /// Bytes a row of the `scales` plane, a multiple of 4.
    pub scales_stride: usize,
    /// Bytes a row of the `supers` plane, a multiple of 4.
    pub supers_stride: usize,
}

impl PlaneLayout {
    /// The layout of rows of `k` weights.
    ///
    /// # Errors
    /// Says what was found and expected when `k` is no positive multiple of 32 and of the type's block.
    pub fn new(kind: QuantType, k: usize) -> Result<Self, String> {
        let unit = kind.block_len().max(32);
        if k == 0 || !k.is_multiple_of(unit) {
            return Err(format!("rows of {k} {kind:?} weights, expected a positive multiple of {unit}"));
        }
        let segments = Segments::of(k);
        let codec = codec(kind);
        let stride = |bytes: usize| (segments.places() * bytes).next_multiple_of(4);
        Ok(Self {
            kind,
            k,
            segments,
            quants_stride: stride(codec.quants),
            high_stride: stride(codec.high),
            scales_stride: stride(codec.scales),
            supers_stride: (k / unit * codec.supers).next_multiple_of(4),
        })
    }

    /// Bytes a row over all planes.
    pub fn row_bytes(&self) -> usize {
        self.quants_stride + self.high_stride + self.scales_stride + self.supers_stride
    }

    /// Offset in the `supers` row of the entry of block `b`; padding blocks read the last entry.
    pub(crate) fn super_offset(&self, b: usize) -> usize {
        (b / 8).min(self.segments.blocks / 8 - 1) * codec(self.kind).supers
    }

    /// The parts of the block at place `i` of a row.
    pub(crate) fn block<'a>(&self, row: &PlanesRef<'a>, i: usize) -> BlockRef<'a> {
        let codec = codec(self.kind);
        let supers = match codec.supers {
            0 => &[][..],
            bytes => &row.supers[self.super_offset(self.segments.block(i))..][..bytes],
        };
        BlockRef {
            quants: &row.quants[i * codec.quants..][..codec.quants],
            high: &row.high[i * codec.high..][..codec.high],
            scales: &row.scales[i * codec.scales..][..codec.scales],
            supers,
        }
    }
}

/// The planes of some rows, in memory of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Planes {
    /// `[rows, quants_stride]`
    pub quants: Vec<u8>,
    /// `[rows, high_stride]`
    pub high: Vec<u8>,
    /// `[rows, scales_stride]`
    pub scales: Vec<u8>,
    /// `[rows, supers_stride]`
    pub supers: Vec<u8>,
}

impl Planes {
    /// Zeroed planes of `rows` rows.
    pub fn zeroed(layout: &PlaneLayout, rows: usize) -> Self {
        Self {
            quants: vec![0; rows * layout.quants_stride],
            high: vec![0; rows * layout.high_stride],
            scales: vec![0; rows * layout.scales_stride],
            supers: vec![0; rows * layout.supers_stride],
        }
    }

    /// Makes room for `rows` rows; what the planes hold is of no meaning afterwards.
    pub fn resize(&mut self, layout: &PlaneLayout, rows: usize) {
        self.quants.resize(rows * layout.quants_stride, 0);
        self.high.resize(rows * layout.high_stride, 0);
        self.scales.resize(rows * layout.scales_stride, 0);
        self.supers.resize(rows * layout.supers_stride, 0);
    }

    /// All planes for writing.
    pub fn as_mut(&mut self) -> PlanesMut<'_> {
        PlanesMut { quants: &mut self.quants, high: &mut self.high, scales: &mut self.scales, supers: &mut self.supers }
    }

    /// All planes for reading.
    pub fn as_ref(&self) -> PlanesRef<'_> {
        PlanesRef { quants: &self.quants, high: &self.high, scales: &self.scales, supers: &self.supers }
    }
}

/// Borrowed planes of some rows, for writing.
#[derive(Debug)]
pub struct PlanesMut<'a> {
    /// `[rows, quants_stride]`
    pub quants: &'a mut [u8],
    /// `[rows, high_stride]`
    pub high: &'a mut [u8],
    /// `[rows, scales_stride]`
    pub scales: &'a mut [u8],
    /// `[rows, supers_stride]`
    pub supers: &'a mut [u8],
}

/// Borrowed planes of some rows, for reading.
#[derive(Debug, Clone, Copy)]
pub struct PlanesRef<'a> {
    /// `[rows, quants_stride]`
    pub quants: &'a [u8],
    /// `[rows, high_stride]`
    pub high: &'a [u8],
    /// `[rows, scales_stride]`
    pub scales: &'a [u8],
    /// `[rows, supers_stride]`
    pub supers: &'a [u8],
}

impl<'a> PlanesRef<'a> {
    /// The planes of row `r` alone.
    pub fn row(&self, layout: &PlaneLayout, r: usize) -> PlanesRef<'a> {
        fn row_of(plane: &[u8], stride: usize, r: usize) -> &[u8] {
            &plane[r * stride..][..stride]
        }
        PlanesRef {
            quants: row_of(self.quants, layout.quants_stride, r),
            high: row_of(self.high, layout.high_stride, r),
            scales: row_of(self.scales, layout.scales_stride, r),
            supers: row_of(self.supers, layout.supers_stride, r),
        }
    }
}

/// Repacks whole rows of file bytes into planes of as many rows. Padding is written too, so planes may be reused.
///
/// # Panics
/// If `src` is no whole number of rows or a plane has another number of rows.
pub fn repack_rows(layout: &PlaneLayout, src: &[u8], planes: PlanesMut<'_>) {
    let row_bytes = layout.kind.row_bytes(layout.k);
    let rows = src.len() / row_bytes;
    assert_eq!(src.len(), rows * row_bytes, "whole rows");
    assert_eq!(planes.quants.len(), rows * layout.quants_stride, "rows of the quants plane");
    for (r, row) in src.chunks_exact(row_bytes).enumerate() {
        repack_row(
            layout,
            row,
            PlanesMut {
                quants: &mut planes.quants[r * layout.quants_stride..][..layout.quants_stride],
                high: &mut planes.high[r * layout.high_stride..][..layout.high_stride],
                scales: &mut planes.scales[r * layout.scales_stride..][..layout.scales_stride],
                supers: &mut planes.supers[r * layout.supers_stride..][..layout.supers_stride],
            },
        );
    }
}

fn repack_row(layout: &PlaneLayout, row: &[u8], planes: PlanesMut<'_>) {
    let (codec, segments) = (codec(layout.kind), layout.segments);
    if segments.places() != segments.blocks {
        planes.quants.fill(0);
        planes.high.fill(0);
    }
    // The scales and supers of a row may end in bytes that belong to no block.
    planes.scales.fill(0);
    planes.supers.fill(0);
    let (unit_bytes, blocks_a_unit) = file_unit(layout.kind);
    for (u, unit) in row.chunks_exact(unit_bytes).enumerate() {
        for sub in 0..blocks_a_unit {
            let i = segments.place(u * blocks_a_unit + sub);
            let out = BlockMut {
                quants: &mut planes.quants[i * codec.quants..][..codec.quants],
                high: &mut planes.high[i * codec.high..][..codec.high],
                scales: &mut planes.scales[i * codec.scales..][..codec.scales],
            };
            (codec.unpack)(unit, sub, out);
        }
        if codec.supers > 0 {
            (codec.unpack_super)(unit, &mut planes.supers[u * codec.supers..][..codec.supers]);
        }
    }
}

/// Bytes of the smallest run of file blocks that holds whole blocks of 32 weights, and how many it holds.
fn file_unit(kind: QuantType) -> (usize, usize) {
    let len = kind.block_len().max(32);
    (kind.row_bytes(len), len / 32)
}

/// Dequantises one row of planes to `out`, `[k]`: the values the file's own bytes stand for.
pub fn dequantise_packed_row(layout: &PlaneLayout, row: &PlanesRef<'_>, out: &mut [f32]) {
    let codec = codec(layout.kind);
    for (b, values) in out.chunks_exact_mut(32).enumerate() {
        block_values(codec, layout.block(row, layout.segments.place(b)), values);
    }
}

/// Dequantises one row of file bytes to `out`, as many values as `row` holds; for K-quants and 32-blocks bit for bit
/// what the reference implementation gives.
///
/// # Panics
/// If `row` is no whole number of blocks of 32 weights or `out` has another length.
pub fn dequantise_row(kind: QuantType, row: &[u8], out: &mut [f32]) {
    let codec = codec(kind);
    let (unit_bytes, blocks_a_unit) = file_unit(kind);
    assert_eq!(row.len() / unit_bytes * blocks_a_unit * 32, out.len(), "values of the row");
    let (mut quants, mut high, mut scales, mut supers) = ([0; 128], [0; 8], [0; 4], [0; 4]);
    for (unit, values) in row.chunks_exact(unit_bytes).zip(out.chunks_exact_mut(blocks_a_unit * 32)) {
        (codec.unpack_super)(unit, &mut supers[..codec.supers]);
        for (sub, values) in values.chunks_exact_mut(32).enumerate() {
            let (quants, high, scales) =
                (&mut quants[..codec.quants], &mut high[..codec.high], &mut scales[..codec.scales]);
            (codec.unpack)(unit, sub, BlockMut { quants, high, scales });
            block_values(codec, BlockRef { quants, high, scales, supers: &supers[..codec.supers] }, values);
        }
    }
}

/// The 32 weights of a block.
fn block_values(codec: &Codec, block: BlockRef<'_>, out: &mut [f32]) {
    match codec.decode {
        Decode::Floats(values) => values(block.quants, out),
        Decode::Integers(decode) => decode(block).dequantise(out),
    }
}

/// The first file block of a row that holds a scale (or, for float types, a value) that is NaN or infinite.
pub fn find_nonfinite(kind: QuantType, row: &[u8]) -> Option<usize> {
    let finite_f16 = |block: &[u8], at: &[usize]| at.iter().all(|&i| f16_at(block, i).is_finite());
    let blocks = row.chunks_exact(kind.block_bytes());
    let finite: &dyn Fn(&[u8]) -> bool = match kind {
        QuantType::F32 => &|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).is_finite(),
        QuantType::BF16 => &|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16).is_finite(),
        QuantType::F16 | QuantType::Q4_0 | QuantType::Q5_0 | QuantType::Q8_0 => &|b| finite_f16(b, &[0]),
        QuantType::Q4_1 | QuantType::Q5_1 | QuantType::Q4_K | QuantType::Q5_K => &|b| finite_f16(b, &[0, 2]),
        QuantType::Q6_K => &|b| finite_f16(b, &[208]),
    };
    blocks.into_iter().position(|block| !finite(block))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// File blocks and the reference implementation's values for them.
    fn golden(kind: QuantType) -> (Vec<u8>, Vec<f32>) {
        let path = format!("{}/tests/data/quant/{kind:?}.bin", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).unwrap();
        let blocks = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        let values = bytes[8 + blocks..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        (bytes[8..8 + blocks].to_vec(), values.collect())
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|v| v.to_bits()).collect()
    }

    #[test]
    fn file_rows_dequantise_as_the_reference_does() {
        for kind in QuantType::ALL {
            let (blocks, expected) = golden(kind);
            let mut values = vec![f32::NAN; expected.len()];
            dequantise_row(kind, &blocks, &mut values);
            assert_eq!(bits(&values), bits(&expected), "{kind:?}");
            assert_eq!(find_nonfinite(kind, &blocks), None, "{kind:?}");
        }
    }

    #[test]
    fn planes_keep_every_bit() {
        // 1 block, P = 19, P = 32 with padding (37 blocks), L = 2; K-quants: natural, P = 20, padding (37 * 8 blocks).
        for k in [32, 608, 1184, 1536, 256, 2560, 37 * 256] {
            for kind in QuantType::ALL {
                let Ok(layout) = PlaneLayout::new(kind, k) else { continue };
                let (blocks, _) = golden(kind);
                let row_bytes = kind.row_bytes(k);
                let src: Vec<u8> = blocks.iter().copied().cycle().take(3 * row_bytes).collect();
                let mut planes = Planes::zeroed(&layout, 3);
                planes.quants.fill(0xaa);
                repack_rows(&layout, &src, planes.as_mut());
                for r in 0..3 {
                    let (mut file, mut packed) = (vec![0.0; k], vec![f32::NAN; k]);
                    dequantise_row(kind, &src[r * row_bytes..][..row_bytes], &mut file);
                    dequantise_packed_row(&layout, &planes.as_ref().row(&layout, r), &mut packed);
                    assert_eq!(bits(&packed), bits(&file), "{kind:?}, k = {k}, row {r}");
                }
            }
        }
    }

    #[test]
    fn nonfinite_scales_are_found() {
        for kind in QuantType::ALL {
            let at = if kind == QuantType::Q6_K { 208 } else { 0 };
            let mut row = vec![0; 3 * kind.block_bytes()];
            let block = &mut row[2 * kind.block_bytes() + at..];
            match kind {
                QuantType::F32 => block[..4].copy_from_slice(&f32::NAN.to_le_bytes()),
                QuantType::BF16 => block[..2].copy_from_slice(&[0x80, 0x7f]),
                _ => block[..2].copy_from_slice(&[0x00, 0x7c]),
            }
            assert_eq!(find_nonfinite(kind, &row), Some(2), "{kind:?}");
        }
    }

    #[test]
    fn widths_that_do_not_fit_are_refused() {
        for (kind, k) in [(QuantType::F32, 0), (QuantType::F16, 33), (QuantType::Q4_K, 576)] {
            let reason = PlaneLayout::new(kind, k).unwrap_err();
            assert!(reason.contains(&k.to_string()) && reason.contains("multiple"), "{reason}");
        }
    }
}
