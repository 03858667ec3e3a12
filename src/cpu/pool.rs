//! The threads of the CPU backend. Splitting never changes bits: every output is computed by one thread.

/// A fixed number of threads; on wasm always one.
#[derive(Debug, Default)]
pub struct Pool {
    #[cfg(not(target_arch = "wasm32"))]
    threads: Option<rayon::ThreadPool>,
}

impl Pool {
    /// The calling thread alone.
    pub fn serial() -> Self {
        Self::default()
    }

    /// `threads` threads, at least one; the calling thread alone where no more can be started.
    pub fn new(threads: usize) -> Self {
        #[cfg(not(target_arch = "wasm32"))]
        if threads > 1 {
            return Self { threads: rayon::ThreadPoolBuilder::new().num_threads(threads).build().ok() };
        }
        let _ = threads;
        Self::serial()
    }

    /// Threads that share the work.
    pub fn threads(&self) -> usize {
        #[cfg(not(target_arch = "wasm32"))]
        if let Some(pool) = &self.threads {
            return pool.current_num_threads();
        }
        1
    }

    /// Runs `work` inside the pool: a caller that shares out many small pieces enters once, not for each.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        #[cfg(not(target_arch = "wasm32"))]
        if let Some(pool) = &self.threads {
            return pool.install(work);
        }
        work()
    }

    /// Calls `work(i, chunk)` for every chunk of `chunk_len` values of `data` (the last may be shorter), on any thread in
    /// any order.
    pub fn for_chunks<T: Send>(&self, data: &mut [T], chunk_len: usize, work: impl Fn(usize, &mut [T]) + Sync + Send) {
        #[cfg(not(target_arch = "wasm32"))]
        if let Some(pool) = &self.threads
            && data.len() > chunk_len
        {
            use rayon::prelude::*;
            return pool.install(|| data.par_chunks_mut(chunk_len).enumerate().for_each(|(i, chunk)| work(i, chunk)));
        }
        data.chunks_mut(chunk_len).enumerate().for_each(|(i, chunk)| work(i, chunk));
    }
}
