//! Compiled kernels.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::gpu::kernels::Kernel;

/// A compiled kernel.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// A change to the text of every kernel of one stem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShaderPatch {
    /// The kernels' stem, for example `matmul`.
    pub stem: &'static str,
    /// Text to replace.
    pub from: &'static str,
    /// What stands there instead.
    pub to: &'static str,
}

impl ShaderPatch {
    /// Fails where no kernel of the stem has the text.
    pub(crate) fn check(&self) -> Result<()> {
        let is_found = |kernel: Kernel| kernel.stem() == self.stem && kernel.source().contains(self.from);
        match Kernel::all().into_iter().any(is_found) {
            true => Ok(()),
            false => Err(Error::BadOption {
                option: "shader patch",
                found: format!("{:?} in {:?}", self.from, self.stem),
                expected: "text of a kernel of that stem",
            }),
        }
    }

    fn apply(&self, kernel: Kernel, source: String) -> String {
        if kernel.stem() == self.stem { source.replace(self.from, self.to) } else { source }
    }
}

/// Compiled kernels, by variant.
#[derive(Debug)]
pub(crate) struct Pipelines {
    patch: Option<ShaderPatch>,
    compiled: Mutex<HashMap<Kernel, Pipeline>>,
}

impl Pipelines {
    /// None compiled yet; `patch` applies to all that will be.
    pub(crate) fn new(patch: Option<ShaderPatch>) -> Self {
        Pipelines { patch, compiled: Mutex::default() }
    }

    /// The compiled kernel; compiles it on its first use.
    pub(crate) fn get(&self, device: &wgpu::Device, kernel: Kernel) -> Pipeline {
        let mut compiled = self.compiled.lock().unwrap_or_else(|e| e.into_inner());
        let entry = compiled.entry(kernel);
        entry.or_insert_with(|| compile(device, kernel, self.source(kernel))).clone()
    }

    fn source(&self, kernel: Kernel) -> String {
        match &self.patch {
            Some(patch) => patch.apply(kernel, kernel.source()),
            None => kernel.source(),
        }
    }
}

fn compile(device: &wgpu::Device, kernel: Kernel, source: String) -> Pipeline {
    let name = kernel.name();
    let entries: Vec<_> = bindings(&source).into_iter().map(layout_entry).collect();
    let layout =
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(&name), entries: &entries });
    let descriptor =
        wgpu::ShaderModuleDescriptor { label: Some(&name), source: wgpu::ShaderSource::Wgsl(source.into()) };
    // A counter in every loop keeps drivers from unrolling them, which costs a sixth of a token's time.
    let checks = wgpu::ShaderRuntimeChecks { force_loop_bounding: false, ..wgpu::ShaderRuntimeChecks::checked() };
    // SAFETY: every loop of these shaders counts towards a bound that it does not change, so all of them end. The other checks stay.
    let module = unsafe { device.create_shader_module_trusted(descriptor, checks) };
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(&name),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&name),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            // No kernel reads workgroup memory it has not written.
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: None,
    });
    Pipeline { pipeline, layout }
}

fn layout_entry((binding, ty): (u32, wgpu::BufferBindingType)) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    }
}

/// The bindings a shader declares, each on a line of its own: `@group(0) @binding(N) var<...> name: type;`.
fn bindings(source: &str) -> Vec<(u32, wgpu::BufferBindingType)> {
    let declared = source.lines().filter_map(|line| line.strip_prefix("@group(0) @binding("));
    declared
        .filter_map(|rest| {
            let (number, rest) = rest.split_once(')')?;
            let ty = if rest.contains("var<uniform>") {
                wgpu::BufferBindingType::Uniform
            } else {
                wgpu::BufferBindingType::Storage { read_only: !rest.contains("read_write") }
            };
            Some((number.parse().ok()?, ty))
        })
        .collect()
}
