//! What the wgpu backend refuses, that it stays usable, and bursts in flight. That its bits are the cpu backend's is the matter of `parity.rs`.

mod common;

use blueshift::Error;
use blueshift::engine::backend::{Backend, Burst, First, RingSize, Row};
use blueshift::gpu::GpuBackend;
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;

static DRAWN: Sampling = Sampling::new(0.8, 42);

/// A micro model with a cache of `n_ctx` positions; where there is no device the test is ignored, but fails under CI.
async fn micro_backend(n_ctx: usize) -> Option<GpuBackend> {
    if !common::has_adapter() {
        return None;
    }
    Some(common::gpu_backend(&common::open_gpu(), MicroModel::llama(QuantType::Q4_0).bytes(), n_ctx).await)
}

#[test]
fn bad_requests_are_errors() {
    pollster::block_on(async {
        let Some(mut backend) = micro_backend(64).await else { return };
        assert!(matches!(backend.feed(0, &[u32::MAX], 0).await, Err(Error::BadToken { .. })));
        assert!(matches!(backend.feed(0, &[1, 2], 63).await, Err(Error::ContextFull { needed: 65, limit: 64 })));
        assert!(matches!(backend.feed(0, &[], 0).await, Err(Error::BadOption { .. })));
        assert!(matches!(backend.head(0, 1).await, Err(Error::BadOption { .. })));
        backend.feed(0, &[1, 2], 62).await.unwrap();
        backend.head(0, 1).await.unwrap();
        let rows = |first| [Row::new(0, first, 64, &DRAWN)];
        assert!(matches!(
            backend.burst(Burst { rows: &rows(First::Token(1)), steps: 1 }).await,
            Err(Error::ContextFull { .. })
        ));
        let drawn = backend.burst(Burst { rows: &rows(First::FromLogits), steps: 1 }).await.unwrap();
        assert_eq!(drawn[0].ids.len(), 1);
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
        let rows = |first, position| [Row::new(0, first, position, sampling)];
        backend.feed(0, &[1, 2, 3], 0).await.unwrap();
        backend.head(0, 2).await.unwrap();
        let wanted = backend.burst(Burst { rows: &rows(First::FromLogits, 3), steps: 9 }).await.unwrap()[0].ids.clone();

        backend.feed(0, &[1, 2, 3], 0).await.unwrap();
        backend.head(0, 2).await.unwrap();
        let mut flying = vec![backend.submit_burst(Burst { rows: &rows(First::FromLogits, 3), steps: 3 }).unwrap()];
        for position in [5, 7, 9] {
            flying.push(backend.submit_burst(Burst { rows: &rows(First::FromState, position), steps: 2 }).unwrap());
        }
        assert_eq!(flying.len(), RingSize::default().slots);
        let refused = backend.submit_burst(Burst { rows: &rows(First::FromState, 11), steps: 1 });
        assert!(matches!(refused, Err(Error::RingFull { slots: 4 })));
        let last = flying.pop();
        let mut ids = Vec::new();
        for burst in flying {
            ids.extend(&burst.drawn().await.unwrap()[0].ids);
        }
        drop(last);
        // The last but one burst's last token is fed again, over what the discarded burst left.
        ids.extend(&backend.burst(Burst { rows: &rows(First::Token(ids[6]), 9), steps: 2 }).await.unwrap()[0].ids);
        assert_eq!(ids, wanted);
    });
}
