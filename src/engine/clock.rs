//! Milliseconds since an arbitrary start, natively and in a browser.

/// Milliseconds since an arbitrary start.
#[cfg(not(target_arch = "wasm32"))]
pub fn now_ms() -> f64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64() * 1e3
}

/// Milliseconds since an arbitrary start.
#[cfg(target_arch = "wasm32")]
pub fn now_ms() -> f64 {
    use wasm_bindgen::JsCast;
    let performance = js_sys::Reflect::get(&js_sys::global(), &"performance".into());
    match performance.ok().and_then(|p| p.dyn_into::<web_sys::Performance>().ok()) {
        Some(performance) => performance.now(),
        None => js_sys::Date::now(),
    }
}
