//! Serves the embedded API server on loopback until Ctrl-C: `serve KUBECONFIG [DATA-DIR]`.

use std::path::PathBuf;
use std::time::Duration;

use keleustes_apiserver::http::{Limits, Pki, serve};
use keleustes_apiserver::state_dir::StateDir;
use keleustes_apiserver::{ApiServer, User, entropy, private_files};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let kubeconfig = arguments.next().ok_or("usage: serve KUBECONFIG [DATA-DIR]")?;
    let builder = ApiServer::builder().entropy(entropy::operating_system()).rbac(true);
    let builder = builder.event_ttl(Duration::from_secs(3600)).request_log_limit(1000);
    let (ending, ended) = tokio::sync::watch::channel(false);
    let (server, pki, saving) = match arguments.next() {
        None => (builder.build(), Pki::generate()?, None),
        Some(dir) => {
            let (server, state_dir, found) = StateDir::open(&dir, builder)?;
            println!("{} entries read, {} skipped", found.entries, found.skipped);
            let pki = Pki::load_or_generate(&dir)?;
            let saving = tokio::spawn(state_dir.run(server.clone(), Duration::from_millis(200), ended));
            (server, pki, Some(saving))
        }
    };
    let serving = serve(server, "127.0.0.1:0".parse()?, pki, Limits::default()).await?;
    private_files::write(&kubeconfig, &serving.kubeconfig(&User::admin())?)?;
    println!("export KUBECONFIG={}", kubeconfig.display());
    tokio::signal::ctrl_c().await?;
    serving.stop().await;
    // Without a data directory there is no receiver.
    let _ = ending.send(true);
    if let Some(saving) = saving {
        saving.await??;
    }
    Ok(())
}
