//! Compares what two backends wrote, value by value.

use std::ops::Range;

use super::report::Value;
use crate::numerics::{Segments, from_f16};
use crate::plan::KV_BLOCK;

/// How words are read.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// f32 bits, `[rows, width]`, of which these columns count.
    F32 { what: &'static str, width: usize, columns: Range<usize> },
    /// Int8 words `[rows, places, 8]`, then bits of scales and sums `[rows, places, 2]`. Padding places do not count.
    Q8 { width: usize },
    /// f16 bits, one a word, `[rows, width]`.
    F16 { what: &'static str, width: usize },
    /// Rows of int8, one a word, `[width]`, and then f16 bits of their blocks' scales.
    Q8Cache { what: [&'static str; 2], width: usize },
}

/// The first value that differs, and how many do.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mismatch {
    pub(super) what: &'static str,
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) device: Value,
    pub(super) cpu: Value,
    /// Values that differ, of how many.
    pub(super) differing: usize,
    pub(super) values: usize,
    /// The largest difference between two finite values.
    pub(super) largest: f64,
}

/// Values of one kind.
struct Part {
    what: &'static str,
    value: fn(u32) -> f64,
    /// Values a row, and the column and the word (within all words) of the `i`th of a row.
    a_row: usize,
    rows: usize,
    at: Box<dyn Fn(usize, usize) -> Place>,
}

/// Where a value lies.
struct Place {
    column: usize,
    word: usize,
    /// Bits to shift out and to keep.
    shift: u32,
    mask: u32,
}

impl Place {
    fn whole(column: usize, word: usize) -> Self {
        Place { column, word, shift: 0, mask: u32::MAX }
    }
}

fn f32_value(bits: u32) -> f64 {
    f64::from(f32::from_bits(bits))
}

fn f16_value(bits: u32) -> f64 {
    f64::from(from_f16(bits as u16))
}

fn i8_value(bits: u32) -> f64 {
    f64::from(bits as u8 as i8)
}

fn i32_value(bits: u32) -> f64 {
    f64::from(bits as i32)
}

impl Form {
    fn parts(&self, n_words: usize) -> Vec<Part> {
        match self.clone() {
            Form::F32 { what, width, columns } => {
                let (first, a_row) = (columns.start, columns.len());
                let at = move |row, i| Place::whole(first + i, row * width + first + i);
                vec![Part { what, value: f32_value, a_row, rows: n_words / width, at: Box::new(at) }]
            }
            Form::F16 { what, width } => {
                let at = move |row, i| Place::whole(i, row * width + i);
                vec![Part { what, value: f16_value, a_row: width, rows: n_words / width, at: Box::new(at) }]
            }
            Form::Q8Cache { what, width } => {
                let blocks = width / KV_BLOCK;
                let rows = n_words / (width + blocks);
                let integer = move |row, i| Place::whole(i, row * (width + blocks) + i);
                let scale = move |row, block| Place::whole(KV_BLOCK * block, row * (width + blocks) + width + block);
                vec![
                    Part { what: what[0], value: i8_value, a_row: width, rows, at: Box::new(integer) },
                    Part { what: what[1], value: f16_value, a_row: blocks, rows, at: Box::new(scale) },
                ]
            }
            Form::Q8 { width } => Self::int8(width, n_words),
        }
    }

    fn int8(width: usize, n_words: usize) -> Vec<Part> {
        let segments = Segments::of(width);
        let places = segments.places();
        let rows = n_words / (places * 10);
        let integer = move |row, i: usize| {
            let word = (row * places + segments.place(i / 32)) * 8 + i % 32 / 4;
            Place { column: i, word, shift: 8 * (i as u32 % 4), mask: 0xff }
        };
        let of_block = move |offset| {
            move |row, block| {
                let word = rows * places * 8 + (row * places + segments.place(block)) * 2 + offset;
                Place::whole(32 * block, word)
            }
        };
        let blocks = segments.blocks;
        vec![
            Part { what: "int8 values", value: i8_value, a_row: width, rows, at: Box::new(integer) },
            Part { what: "scales", value: f32_value, a_row: blocks, rows, at: Box::new(of_block(0)) },
            Part { what: "sums", value: i32_value, a_row: blocks, rows, at: Box::new(of_block(1)) },
        ]
    }
}

impl Part {
    fn compare(&self, device: &[u32], cpu: &[u32]) -> Option<Mismatch> {
        let mut found: Option<Mismatch> = None;
        for row in 0..self.rows {
            for i in 0..self.a_row {
                let place = (self.at)(row, i);
                let [a, b] = [device, cpu].map(|words| words[place.word] >> place.shift & place.mask);
                let (x, y) = ((self.value)(a), (self.value)(b));
                // The contract does not say which NaN.
                if a == b || (x.is_nan() && y.is_nan()) {
                    continue;
                }
                let found = found.get_or_insert(Mismatch {
                    what: self.what,
                    row,
                    column: place.column,
                    device: Value::new(x, a),
                    cpu: Value::new(y, b),
                    differing: 0,
                    values: self.rows * self.a_row,
                    largest: 0.0,
                });
                found.differing += 1;
                let by = (x - y).abs();
                if by.is_finite() {
                    found.largest = found.largest.max(by);
                }
            }
        }
        found
    }
}

/// The first value in which the device's words differ from the cpu's; both hold whole rows of `form`.
pub(super) fn compare(form: &Form, device: &[u32], cpu: &[u32]) -> Option<Mismatch> {
    if device == cpu {
        return None;
    }
    let n_words = device.len().min(cpu.len());
    form.parts(n_words).iter().find_map(|part| part.compare(device, cpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::quantise::Q8Rows;

    const NAN: u32 = 0x7fc0_0000;

    fn plain(columns: Range<usize>) -> Form {
        Form::F32 { what: "values", width: 4, columns }
    }

    #[test]
    fn the_first_differing_value_is_named() {
        let bits = |values: &[f32]| -> Vec<u32> { values.iter().map(|v| v.to_bits()).collect() };
        let wanted = bits(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let mut found = wanted.clone();
        assert_eq!(compare(&plain(0..4), &found, &wanted), None);
        (found[3], found[5], found[6]) = (3.5f32.to_bits(), NAN, 2.0f32.to_bits());
        let m = compare(&plain(0..4), &found, &wanted).unwrap();
        assert_eq!((m.row, m.column, m.differing, m.values, m.largest), (0, 3, 3, 8, 4.0));
        assert_eq!((m.device, m.cpu), (Value::new(3.5, 0x4060_0000), Value::new(3.0, 0x4040_0000)));
        let m = compare(&plain(1..3), &found, &wanted).unwrap();
        assert_eq!((m.row, m.column, m.differing, m.values), (1, 1, 2, 4));
        assert_eq!(compare(&plain(0..1), &found, &wanted), None, "other columns do not count");
    }

    #[test]
    fn zeros_differ_by_their_sign_and_nans_do_not_differ() {
        let form = Form::F32 { what: "values", width: 1, columns: 0..1 };
        assert!(compare(&form, &[0x8000_0000], &[0]).is_some());
        assert!(compare(&form, &[0xffc0_0001], &[NAN]).is_none());
    }

    #[test]
    fn int8_rows_are_read_by_column() {
        // 48 blocks, interleaved; 33 blocks, with padding places.
        for width in [1536, 33 * 32] {
            let values: Vec<f32> = (0..2 * width).map(|i| (i % 100) as f32 - 50.0).collect();
            let mut rows = Q8Rows::zeroed(width, 2);
            values.chunks_exact(width).enumerate().for_each(|(r, row)| rows.quantise_row(r, row));
            let (wanted, form, places) = (rows.words(), Form::Q8 { width }, rows.segments.places());
            let with = |change: &dyn Fn(&mut Q8Rows)| {
                let mut changed = rows.clone();
                change(&mut changed);
                compare(&form, &changed.words(), &wanted)
            };
            let at = places + rows.segments.place(30);
            let m = with(&|rows| rows.q[at * 32 + 7] ^= 1).unwrap();
            assert_eq!((m.what, m.row, m.column, m.differing, m.largest), ("int8 values", 1, 967, 1, 1.0));
            assert_eq!(m.cpu.value, f64::from(rows.q[at * 32 + 7]));
            let m = with(&|rows| rows.d[at] *= 2.0).unwrap();
            assert_eq!((m.what, m.row, m.column), ("scales", 1, 960));
            let m = with(&|rows| rows.sum[at] = -5).unwrap();
            assert_eq!((m.what, m.row, m.column, m.device.value), ("sums", 1, 960, -5.0));
            for padding in (0..places).filter(|place| rows.segments.block(*place) >= rows.segments.blocks) {
                assert_eq!(with(&|rows| rows.q[padding * 32] = 9), None);
            }
        }
    }

    #[test]
    fn cached_values_are_f16() {
        let form = Form::F16 { what: "cached keys", width: 2 };
        let m = compare(&form, &[0, 0, 0x3c00, 0], &[0, 0, 0x4000, 0]).unwrap();
        assert_eq!((m.what, m.row, m.column, m.device.value, m.cpu.value), ("cached keys", 1, 0, 1.0, 2.0));
    }

    #[test]
    fn cached_blocks_are_int8_and_scales() {
        let form = Form::Q8Cache { what: ["cached keys", "scales of cached keys"], width: 64 };
        let wanted = vec![0; 2 * 66];
        let with = |at: usize, word| {
            let mut found = wanted.clone();
            found[at] = word;
            let m = compare(&form, &found, &wanted).unwrap();
            (m.what, m.row, m.column, m.device.value)
        };
        assert_eq!(with(66 + 40, 0x81), ("cached keys", 1, 40, -127.0));
        assert_eq!(with(65, 0x3c00), ("scales of cached keys", 0, 32, 1.0));
    }
}
