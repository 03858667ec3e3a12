//! What a table of cases has to give.

use blueshift::gpu::cases::CaseResult;

/// Differences that are shown at most.
const SHOWN: usize = 40;

/// Fails where a case's bits are not its twin's.
pub(crate) fn check(results: &[CaseResult]) {
    let failures: Vec<_> = results.iter().filter(|case| !case.equal).collect();
    let shown = &failures[..failures.len().min(SHOWN)];
    assert!(failures.is_empty(), "{} of {} cases: {shown:#?}", failures.len(), results.len());
}
