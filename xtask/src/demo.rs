//! The demo page: what it needs, its server, a browser.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::models::{self, Which};
use crate::run::root;
use crate::serve::{Mount, Server};
use crate::system;
use crate::web::{self, Profile};

/// Builds the package, downloads the default model and serves the page.
pub(crate) fn demo(port: u16, open: bool) -> Result<()> {
    system::install_missing(&system::FOR_DEMO)?;
    let models = models::folder(None)?;
    models::fetch(Which::Smollm2, &models)?;
    web::build(Profile::Release)?;
    serve(port, &models, open)
}

/// Serves the page at `/`, the package at `/blueshift/` and the models at `/models/`, until the process ends.
pub(crate) fn serve(port: u16, models: &Path, open: bool) -> Result<()> {
    let mounts = vec![
        Mount::new("/blueshift/", web::dist()),
        Mount::new("/models/", models.to_path_buf()),
        Mount::new("/", root().join("www")),
    ];
    let server = Server::bind(port, mounts)?;
    let address = server.address();
    println!("\n    The page is at {address}\n    Stop with Ctrl+C.\n");
    if open && !open_browser(&address) {
        println!("no browser could be started; open the address yourself");
    }
    server.serve()
}

/// Starts the system's way to open an address; whether it opens anything is not waited for.
fn open_browser(address: &str) -> bool {
    let (program, args): (&str, &[&str]) = match std::env::consts::OS {
        "macos" => ("open", &[]),
        "windows" => ("cmd", &["/C", "start", ""]),
        _ => ("xdg-open", &[]),
    };
    let mut opener = Command::new(program);
    opener.args(args).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    opener.spawn().is_ok()
}
