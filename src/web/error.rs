//! Errors as JavaScript sees them.

use js_sys::{Error as JsError, Reflect};
use wasm_bindgen::JsValue;

use crate::error::Error;

/// An `Error` named `BlueshiftError`, with the variant's name as its `code`.
pub(super) fn to_js(error: Error) -> JsValue {
    let js = JsError::new(&error.to_string());
    js.set_name("BlueshiftError");
    // Setting a property of a fresh object cannot fail.
    let _ = Reflect::set(&js, &"code".into(), &code(&error).into());
    js.into()
}

/// The variant's name, such as `NotGguf`.
pub(super) fn code(error: &Error) -> String {
    let shown = format!("{error:?}");
    shown.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}
