//! What the wgpu backend refuses, that it stays usable, and bursts in flight. That its bits are the cpu backend's is the matter of `parity.rs`.

mod common;

use blueshift::Error;
use blueshift::engine::backend::{Backend, Burst, First, RingSize};
use blueshift::gpu::{Gpu, GpuBackend};
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;

static DRAWN: Sampling = Sampling::new(0.8, 42);

/// A micro model with a cache of `n_ctx` positions; where there is no device the test is ignored, but fails under CI.
async fn micro_backend(n_ctx: usize) -> Option<GpuBackend> {
    let gpu = match Gpu::open(None).await {
        Ok(gpu) => gpu,
        Err(error) => {
            common::ignored(&error.to_string());
            return None;
        }
    };
    Some(common::gpu_backend(&gpu, MicroModel::llama(QuantType::Q4_0).bytes(), n_ctx).await)
}

#[test]
fn bad_requests_are_errors() {
    pollster::block_on(async {
        let Some(mut backend) = micro_backend(64).await else { return };
        assert!(matches!(backend.feed(&[u32::MAX], 0).await, Err(Error::BadToken { .. })));
        assert!(matches!(backend.feed(&[1, 2], 63).await, Err(Error::ContextFull { needed: 65, limit: 64 })));
        assert!(matches!(backend.feed(&[], 0).await, Err(Error::BadOption { .. })));
        assert!(matches!(backend.head(1).await, Err(Error::BadOption { .. })));
        backend.feed(&[1, 2], 62).await.unwrap();
        backend.head(1).await.unwrap();
        let burst = |first, steps| Burst { first, position: 64, steps, sampling: &DRAWN, stop_ids: &[], left: 1000 };
        assert!(matches!(backend.burst(burst(First::Token(1), 1)).await, Err(Error::ContextFull { .. })));
        assert_eq!(backend.burst(burst(First::FromLogits, 1)).await.unwrap().ids.len(), 1);
    });
}

/// Bursts in flight one behind the other give what awaited ones give; a discarded one leaves no trace.
#[test]
fn bursts_overlap() {
    overlap(Sampling::new(0.8, 42));
    overlap(Sampling { repeat_penalty: 1.4, presence_penalty: 0.5, top_k: 50, ..Sampling::new(1.5, 42) });
}

fn overlap(sampling: Sampling) {
    pollster::block_on(async {
        let Some(mut backend) = micro_backend(64).await else { return };
        let sampling = &sampling;
        let burst = |first, position, steps| Burst { first, position, steps, sampling, stop_ids: &[], left: 1000 };
        backend.feed(&[1, 2, 3], 0).await.unwrap();
        backend.head(2).await.unwrap();
        let wanted = backend.burst(burst(First::FromLogits, 3, 9)).await.unwrap().ids;

        backend.feed(&[1, 2, 3], 0).await.unwrap();
        backend.head(2).await.unwrap();
        let mut flying = vec![backend.submit_burst(burst(First::FromLogits, 3, 3)).unwrap()];
        for position in [5, 7, 9] {
            flying.push(backend.submit_burst(burst(First::FromState, position, 2)).unwrap());
        }
        assert_eq!(flying.len(), RingSize::default().slots);
        let refused = backend.submit_burst(burst(First::FromState, 11, 1));
        assert!(matches!(refused, Err(Error::RingFull { slots: 4 })));
        let last = flying.pop();
        let mut ids = Vec::new();
        for burst in flying {
            ids.extend(burst.drawn().await.unwrap().ids);
        }
        drop(last);
        // The last but one burst's last token is fed again, over what the discarded burst left.
        ids.extend(backend.burst(burst(First::Token(ids[6]), 9, 2)).await.unwrap().ids);
        assert_eq!(ids, wanted);
    });
}
