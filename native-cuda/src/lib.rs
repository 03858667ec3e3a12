//! The CUDA side of blueshift: for comparing a server's answers with a browser's.
//!
//! It has no kernels yet. What it has is the front half that every backend shares: a file is opened, checked and turned into the plan
//! that the CUDA interpreter is to run, by the root crate's own loader.

use blueshift::Result;
use blueshift::gguf::{GgufFile, Source, open};
use blueshift::model::Model;

/// A model opened for a CUDA device.
#[derive(Debug)]
pub struct CudaModel {
    /// The file, from which the weights will be streamed.
    pub file: GgufFile,
    /// Configuration, list of weights and plan.
    pub model: Model,
}

impl CudaModel {
    /// Opens and checks a model.
    ///
    /// # Errors
    /// Those of [`open`] and [`Model::open`].
    pub async fn open(source: Source) -> Result<Self> {
        let file = open(source).await?;
        let model = Model::open(&file).await?;
        Ok(CudaModel { file, model })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blueshift::micro::MicroModel;
    use blueshift::quant::QuantType;

    #[test]
    fn shares_the_loader() {
        let source = Source::memory("micro", MicroModel::llama(QuantType::Q4_0).bytes());
        let opened = pollster::block_on(CudaModel::open(source)).unwrap();
        assert_eq!(opened.model.plan.layers.len(), opened.model.config.n_layers);
    }

    #[test]
    fn refuses_what_is_no_model() {
        let error = pollster::block_on(CudaModel::open(Source::memory("text", b"hello".to_vec()))).unwrap_err();
        assert!(matches!(error, blueshift::Error::NotGguf { .. }), "{error}");
    }
}
