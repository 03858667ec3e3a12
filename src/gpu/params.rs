//! Parameters of the kernels: each is the `Params` of its shader, field by field.

use bytemuck::{Pod, Zeroable};

use super::weights::{Part, plane_offsets};
use crate::engine::backend::MAX_SLOTS;
use crate::quant::PlaneLayout;
use crate::sample::Sampling;

/// Bytes a kernel's parameters take in the uniform buffer: the alignment every device allows.
pub(crate) const SLOT: u64 = 256;

/// Declares a parameter struct. The first field of all is `zero`, which `guard` needs; every field is four bytes, or `planes`.
macro_rules! params {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
        pub(crate) struct $name {
            pub(crate) zero: u32,
            $(pub(crate) $field: $type,)*
        }

        #[cfg(test)]
        impl $name {
            pub(crate) const FIELDS: &[&str] = &["zero", $(stringify!($field)),*];
        }
    };
}

/// Where the planes of a part of a matrix lie, in the shaders' units: u32, and vec4 for `quants_stride`. In a shader these are fields of `Params`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub(crate) struct Planes {
    pub(crate) quants_stride: u32,
    pub(crate) high_offset: u32,
    pub(crate) high_stride: u32,
    pub(crate) scales_offset: u32,
    pub(crate) scales_stride: u32,
    pub(crate) supers_offset: u32,
    pub(crate) supers_stride: u32,
}

impl Planes {
    pub(crate) fn of(layout: &PlaneLayout, part: &Part) -> Self {
        let [high, scales, supers] = plane_offsets(layout, part.rows).map(|bytes| bytes as u32 / 4);
        Planes {
            quants_stride: layout.quants_stride as u32 / 16,
            high_offset: high,
            high_stride: layout.high_stride as u32 / 4,
            scales_offset: scales,
            scales_stride: layout.scales_stride as u32 / 4,
            supers_offset: supers,
            supers_stride: layout.supers_stride as u32 / 4,
        }
    }
}

params! {
    /// Of `embed`.
    Embed {
        width: u32,
        segments: u32,
        segment_len: u32,
        first_row: u32,
        rows: u32,
        scale: f32,
        planes: Planes,
    }
}

params! {
    /// Of `rms_norm`.
    RmsNorm {
        width: u32,
        segments: u32,
        segment_len: u32,
        eps: f32,
        inverse_width: f32,
        source: u32,
    }
}

params! {
    /// Of `matmul`.
    MatMul {
        rows: u32,
        blocks: u32,
        segments: u32,
        segment_len: u32,
        rows_a_group: u32,
        out_offset: u32,
        out_width: u32,
        accumulate: u32,
        by_slot: u32,
        planes: Planes,
    }
}

params! {
    /// Of `rope_append`.
    RopeAppend {
        n_heads: u32,
        n_kv_heads: u32,
        head_dim: u32,
        query_stride: u32,
        n_pairs: u32,
        neox: u32,
        norm_q: u32,
        norm_k: u32,
        eps: f32,
        inverse_dim: f32,
        q_scale: f32,
        pages_a_slot: u32,
    }
}

params! {
    /// Of `attention`.
    Attention {
        n_heads: u32,
        n_kv_heads: u32,
        head_dim: u32,
        query_stride: u32,
        head_groups: u32,
        window: u32,
        chunks_per_unit: u32,
        max_units: u32,
        pages_a_slot: u32,
    }
}

params! {
    /// Of `attention_merge`.
    AttentionMerge {
        width: u32,
        segments: u32,
        segment_len: u32,
        n_heads: u32,
        head_dim: u32,
        window: u32,
        chunks_per_unit: u32,
        max_units: u32,
        gated: u32,
        qkv_width: u32,
    }
}

params! {
    /// Of `gated_add`.
    GatedAdd {
        width: u32,
    }
}

params! {
    /// Of `delta_prepare`.
    DeltaPrepare {
        n_key_heads: u32,
        n_value_heads: u32,
        size: u32,
        kernel: u32,
        grouped: u32,
        eps: f32,
        query_scale: f32,
    }
}

params! {
    /// Of `delta_rule`.
    DeltaRule {
        n_key_heads: u32,
        n_value_heads: u32,
        kernel: u32,
        grouped: u32,
    }
}

params! {
    /// Of `gated_norm`.
    GatedNorm {
        width: u32,
        segments: u32,
        segment_len: u32,
        size: u32,
        mixed_width: u32,
        gates_at: u32,
        eps: f32,
        inverse_size: f32,
    }
}

params! {
    /// Of `gated_activation`.
    GatedActivation {
        vectors: u32,
        width: u32,
        segments: u32,
        segment_len: u32,
        activation: u32,
    }
}

params! {
    /// Of `route`.
    Route {
        n_experts: u32,
        n_used: u32,
    }
}

params! {
    /// Of `expert_matmul`.
    ExpertMatMul {
        first_row: u32,
        rows: u32,
        n_rows: u32,
        blocks: u32,
        segments: u32,
        segment_len: u32,
        rows_a_group: u32,
        n_used: u32,
        x_vectors: u32,
        out_offset: u32,
        out_width: u32,
        planes: Planes,
    }
}

params! {
    /// Of `combine_experts`.
    CombineExperts {
        width: u32,
        n_used: u32,
    }
}

params! {
    /// Of `sample`.
    Sample {
        n_vocab: u32,
    }
}

params! {
    /// Of `sample_adjust`.
    SampleAdjust {
        n_vocab: u32,
        history_a_slot: u32,
    }
}

params! {
    /// Of `sample_filter`.
    SampleFilter {
        n_vocab: u32,
        n_partials: u32,
    }
}

params! {
    /// Of `sample_kept`.
    SampleKept {
        n_vocab: u32,
    }
}

params! {
    /// Of `sample_finish`.
    SampleFinish {
        n_partials: u32,
        history_a_slot: u32,
        stops_a_slot: u32,
    }
}

params! {
    /// Of `stream_read`.
    StreamRead {
        reads: u32,
    }
}

/// What changes of a sequence from token to token: `State` of `shaders/shared/state.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct State {
    pub(crate) position: u32,
    pub(crate) fed: u32,
    pub(crate) step: u32,
    pub(crate) done: u32,
    pub(crate) left: u32,
    pub(crate) n_ctx: u32,
    pub(crate) greedy: u32,
    pub(crate) inverse_temperature: f32,
    pub(crate) seed_low: u32,
    pub(crate) seed_high: u32,
    pub(crate) limit: u32,
    pub(crate) n_stops: u32,
}

impl State {
    /// Byte offset of the fields that no kernel advances.
    pub(crate) const SETTINGS_AT: u64 = 24;

    /// A running row at `position` without limits, which draws greedily.
    pub(crate) fn at(position: usize) -> Self {
        State {
            position: position as u32,
            left: u32::MAX,
            n_ctx: u32::MAX,
            greedy: 1,
            inverse_temperature: 1.0,
            limit: UNGUARDED,
            ..State::zeroed()
        }
    }

    /// The same with draws as `sampling` says.
    pub(crate) fn drawing(self, sampling: &Sampling) -> Self {
        let factor = sampling.inverse_temperature();
        State {
            greedy: u32::from(factor.is_none()),
            inverse_temperature: factor.unwrap_or(1.0),
            seed_low: sampling.seed as u32,
            seed_high: (sampling.seed >> 32) as u32,
            ..self
        }
    }
}

/// The rows of the work at hand: the beginning of `Batch` of `shaders/shared/state.wgsl`. The states of all slots follow.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct RowsHeader {
    pub(crate) chunk: u32,
    pub(crate) n_rows: u32,
    pub(crate) pad: [u32; 2],
    pub(crate) rows: [RowEntry; MAX_SLOTS],
}

/// A row: its slot, the ring's word of its draw 0, how it draws.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct RowEntry {
    pub(crate) slot: u32,
    pub(crate) first_word: u32,
    pub(crate) how: u32,
    pub(crate) pad: u32,
}

/// Bits of `RowEntry::how`, as in the shaders.
pub(crate) const ADJUSTED: u32 = 1;
pub(crate) const FILTERED: u32 = 2;
pub(crate) const MASKED: u32 = 4;

impl RowsHeader {
    /// A chunk of `n_rows` rows of one slot.
    pub(crate) fn chunk(slot: usize, n_rows: usize) -> Self {
        let mut header = RowsHeader { chunk: 1, n_rows: n_rows as u32, ..Zeroable::zeroed() };
        header.rows[0].slot = slot as u32;
        header
    }

    /// A row of each of several slots.
    pub(crate) fn batch(rows: &[RowEntry]) -> Self {
        let mut header = RowsHeader { n_rows: rows.len() as u32, ..Zeroable::zeroed() };
        header.rows[..rows.len()].copy_from_slice(rows);
        header
    }

    /// One row of a slot that draws plainly, its words beginning with the ring's first.
    pub(crate) fn single(slot: usize) -> Self {
        Self::batch(&[RowEntry { slot: slot as u32, ..Zeroable::zeroed() }])
    }
}

/// Byte offset of a slot's state behind the header.
pub(crate) fn state_at(slot: usize) -> u64 {
    (size_of::<RowsHeader>() + slot * size_of::<State>()) as u64
}

/// Bytes of header and states.
pub(crate) const BATCH_BYTES: usize = size_of::<RowsHeader>() + MAX_SLOTS * size_of::<State>();

/// A limit no magnitude reaches.
pub(crate) const UNGUARDED: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::kernels::Kernel;

    /// Names of a struct's members in a shader, every one of them four bytes.
    fn members(kernel: Kernel, name: &str) -> Vec<String> {
        let module = naga::front::wgsl::parse_str(&kernel.source()).unwrap();
        let (_, found) = module.types.iter().find(|(_, t)| t.name.as_deref() == Some(name)).unwrap();
        let naga::TypeInner::Struct { members, .. } = &found.inner else { panic!("{name} is no struct") };
        for (i, member) in members.iter().enumerate() {
            assert_eq!(member.offset as usize, 4 * i, "{kernel:?} {:?}", member.name);
        }
        members.iter().map(|m| m.name.clone().unwrap()).collect()
    }

    /// The fields of `Planes`, in its order.
    const PLANES: &[&str] = &[
        "quants_stride",
        "high_offset",
        "high_stride",
        "scales_offset",
        "scales_stride",
        "supers_offset",
        "supers_stride",
    ];

    #[test]
    fn structs_match_the_shaders() {
        assert_eq!(size_of::<Planes>(), 4 * PLANES.len());
        for kernel in Kernel::all() {
            let fields = match kernel {
                Kernel::Embed(_) => Embed::FIELDS,
                Kernel::RmsNorm(_) => RmsNorm::FIELDS,
                Kernel::MatMul { .. } => MatMul::FIELDS,
                Kernel::RopeAppend(_) => RopeAppend::FIELDS,
                Kernel::Attention(_) => Attention::FIELDS,
                Kernel::AttentionMerge(_) => AttentionMerge::FIELDS,
                Kernel::GatedActivation(_) => GatedActivation::FIELDS,
                Kernel::DeltaPrepare => DeltaPrepare::FIELDS,
                Kernel::DeltaRule { .. } => DeltaRule::FIELDS,
                Kernel::GatedNorm(_) => GatedNorm::FIELDS,
                Kernel::Route => Route::FIELDS,
                Kernel::ExpertMatMul { .. } => ExpertMatMul::FIELDS,
                Kernel::CombineExperts => CombineExperts::FIELDS,
                Kernel::GatedAdd => GatedAdd::FIELDS,
                Kernel::Sample => Sample::FIELDS,
                Kernel::SampleAdjust => SampleAdjust::FIELDS,
                Kernel::SampleFilter => SampleFilter::FIELDS,
                Kernel::SampleKept => SampleKept::FIELDS,
                Kernel::SampleFinish => SampleFinish::FIELDS,
                Kernel::StreamRead => StreamRead::FIELDS,
                Kernel::Empty => &["zero"],
            };
            let flat =
                fields.iter().flat_map(|field| if *field == "planes" { PLANES } else { std::slice::from_ref(field) });
            assert_eq!(members(kernel, "Params"), flat.copied().collect::<Vec<_>>(), "{}", kernel.name());
        }
        assert_eq!(members(Kernel::Sample, "State").len() * 4, size_of::<State>());
    }
}
