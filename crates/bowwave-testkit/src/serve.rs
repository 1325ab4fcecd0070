//! Accepts connections on a runtime of the server's own.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;

use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// A running server; dropping it breaks its connections.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    runtime: Option<Runtime>,
}

/// Serves on a free port of loopback.
pub(crate) fn start<S, B>(service: S) -> io::Result<Serving>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let runtime =
        Builder::new_multi_thread().worker_threads(2).thread_name("testkit").enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        // Ends with the runtime, or without free descriptors: tests then see a refused connection.
        while let Ok((socket, _)) = listener.accept().await {
            let service = ToTheEnd(service.clone());
            // Head and body are two writes; without TCP_NODELAY the second waits for an
            // acknowledgement.
            socket.set_nodelay(true).ok();
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new();
                // A client may disconnect.
                connection.serve_connection(TokioIo::new(socket), service).await.ok();
            });
        }
    });
    Ok(Serving { address, runtime: Some(runtime) })
}

/// Completes a request even if the client disconnects, as a remote server does. Otherwise a
/// completion of an upload could stop halfway.
struct ToTheEnd<S>(S);

impl<S, B> Service<Request<Incoming>> for ToTheEnd<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let answer = tokio::spawn(self.0.call(request));
        Box::pin(async move { answer.await?.map_err(Into::into) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
