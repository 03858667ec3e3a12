//! A weight matrix in planes, in aligned memory.

use crate::quant::{PlaneLayout, Planes, PlanesMut, PlanesRef, dequantise_packed_row, repack_rows};

/// Bytes after the last row of a plane that a vector load may touch.
const SLACK: usize = 2048;

#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes aligned to 64, with `SLACK` readable bytes after them.
#[derive(Debug, Clone)]
struct Plane {
    lines: Vec<Line>,
    len: usize,
}

impl Plane {
    fn zeroed(len: usize) -> Self {
        let lines = if len == 0 { 0 } else { (len + SLACK).div_ceil(64) };
        Self { lines: vec![Line([0; 64]); lines], len }
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }

    /// The bytes from `at` on, slack included; empty for an absent plane.
    #[inline]
    fn from(&self, at: usize) -> &[u8] {
        let bytes: &[u8] = bytemuck::cast_slice(&self.lines);
        &bytes[at..]
    }

    fn rows_mut(&mut self, stride: usize, first: usize, rows: usize) -> &mut [u8] {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.lines);
        &mut bytes[..self.len][first * stride..][..rows * stride]
    }
}

/// A matrix `[k, rows]` in planes, as the CPU backend keeps it.
#[derive(Debug, Clone)]
pub struct PackedMatrix {
    layout: PlaneLayout,
    rows: usize,
    quants: Plane,
    high: Plane,
    scales: Plane,
    supers: Plane,
}

impl PackedMatrix {
    /// A matrix of `rows` rows of zero bytes.
    pub fn zeroed(layout: PlaneLayout, rows: usize) -> Self {
        Self {
            layout,
            rows,
            quants: Plane::zeroed(rows * layout.quants_stride),
            high: Plane::zeroed(rows * layout.high_stride),
            scales: Plane::zeroed(rows * layout.scales_stride),
            supers: Plane::zeroed(rows * layout.supers_stride),
        }
    }

    /// Repacks whole rows of file bytes to the rows from `first` on.
    ///
    /// # Panics
    /// If `src` is no whole number of rows or they do not fit.
    pub fn fill_rows(&mut self, first: usize, src: &[u8]) {
        let layout = self.layout;
        let rows = src.len() / layout.kind.row_bytes(layout.k);
        let planes = PlanesMut {
            quants: self.quants.rows_mut(layout.quants_stride, first, rows),
            high: self.high.rows_mut(layout.high_stride, first, rows),
            scales: self.scales.rows_mut(layout.scales_stride, first, rows),
            supers: self.supers.rows_mut(layout.supers_stride, first, rows),
        };
        repack_rows(&layout, src, planes);
    }

    /// Stores planes of `rows` rows to the rows from `first` on.
    ///
    /// # Panics
    /// If the planes hold another number of rows or they do not fit.
    pub fn write_rows(&mut self, first: usize, rows: usize, planes: &Planes) {
        let layout = self.layout;
        self.quants.rows_mut(layout.quants_stride, first, rows).copy_from_slice(&planes.quants);
        self.high.rows_mut(layout.high_stride, first, rows).copy_from_slice(&planes.high);
        self.scales.rows_mut(layout.scales_stride, first, rows).copy_from_slice(&planes.scales);
        self.supers.rows_mut(layout.supers_stride, first, rows).copy_from_slice(&planes.supers);
    }

    /// Its layout.
    pub fn layout(&self) -> &PlaneLayout {
        &self.layout
    }

    /// Rows, the outputs of a product.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// All planes.
    pub fn planes(&self) -> PlanesRef<'_> {
        PlanesRef {
            quants: self.quants.bytes(),
            high: self.high.bytes(),
            scales: self.scales.bytes(),
            supers: self.supers.bytes(),
        }
    }

    /// The planes from row `r` on, each with at least `SLACK` bytes after the row.
    #[inline]
    pub(crate) fn planes_from(&self, r: usize) -> PlanesRef<'_> {
        PlanesRef {
            quants: self.quants.from(r * self.layout.quants_stride),
            high: self.high.from(r * self.layout.high_stride),
            scales: self.scales.from(r * self.layout.scales_stride),
            supers: self.supers.from(r * self.layout.supers_stride),
        }
    }

    /// Dequantises row `r` to `out`, `[k]`.
    pub fn dequantise_row(&self, r: usize, out: &mut [f32]) {
        dequantise_packed_row(&self.layout, &self.planes().row(&self.layout, r), out);
    }
}
