//! The HTTP client's connections: direct, or through the proxies that the environment names
//! (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`).

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use http::uri::Scheme;
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::legacy::{self, Client};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;
use tower_service::Service;

#[cfg(feature = "s3")]
use super::upload::Pieces;
use crate::descriptors;

/// Sends requests over HTTP/1.1. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Http {
    client: Arc<Client<Connector, RequestBody>>,
    proxies: Arc<Matcher>,
}

impl Http {
    /// A client with up to `connections` idle connections to a server; `timeout` limits the time to
    /// connect, and the time for which a peer may accept no byte.
    pub(super) fn new(timeout: Duration, connections: u32) -> Self {
        Self::through(Matcher::from_env(), timeout, connections)
    }

    fn through(proxies: Matcher, timeout: Duration, connections: u32) -> Self {
        let connector = Connector::new(proxies, timeout);
        let proxies = Arc::clone(&connector.proxies);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(connections as usize)
            .http1_max_buf_size(READ_BYTES_MAX)
            .build(connector);
        Self { client: Arc::new(client), proxies }
    }

    /// Sends a request, and returns its response at the head. Redirections are not followed.
    pub(super) async fn request(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, legacy::Error> {
        let proxy = self.proxies.intercept(request.uri());
        let headers = request.headers_mut();
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        // For https, the CONNECT request has the credentials.
        if let Some(auth) = proxy.as_ref().and_then(|proxy| proxy.basic_auth())
            && request.uri().scheme() == Some(&Scheme::HTTP)
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, auth.clone());
        }
        self.client.request(request).await
    }
}

/// The body of a request.
pub(super) enum RequestBody {
    Nothing,
    #[cfg(feature = "s3")]
    Pieces(Pieces),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    #[cfg_attr(not(feature = "s3"), expect(unused_variables, reason = "only pieces may have to wait"))]
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Nothing => Poll::Ready(None),
            #[cfg(feature = "s3")]
            Self::Pieces(pieces) => pieces.poll(context).map_ok(Frame::data).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Nothing => SizeHint::with_exact(0),
            #[cfg(feature = "s3")]
            Self::Pieces(pieces) => SizeHint::with_exact(pieces.left()),
        }
    }
}

/// Trust in the certificates of the system, or of `SSL_CERT_FILE`. A machine without certificates
/// can still use plain http; https then fails, with a remedy.
fn tls_config() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = || {
        let versions = ClientConfig::builder_with_provider(Arc::clone(&provider));
        versions.with_safe_default_protocol_versions().expect("ring has every version of TLS")
    };
    let roots = builder().with_native_roots();
    let roots = roots.unwrap_or_else(|_| builder().with_root_certificates(RootCertStore::empty()));
    let mut config = roots.with_no_client_auth();
    // One request a connection: multiplexed streams share a window and its losses.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Each client reads the certificates of the system with its first https connection: they are
/// hundreds of files, which take 7 ms.
type Tls = OnceCell<Arc<ClientConfig>>;

/// Opens connections.
#[derive(Clone)]
struct Connector {
    tcp: HttpConnector,
    tls: Arc<Tls>,
    proxies: Arc<Matcher>,
    /// Limit for names, connection, tunnel and TLS handshake together.
    timeout: Duration,
}

impl Connector {
    fn new(proxies: Matcher, timeout: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(timeout));
        // A server that stops accepting would otherwise hold a request's bytes after the request
        // ended.
        tcp.set_tcp_user_timeout(Some(timeout));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        Self { tcp, tls: Arc::default(), proxies: Arc::new(proxies), timeout }
    }

    /// Connects to a server directly, or through a proxy: plain http is forwarded, https goes
    /// through a tunnel.
    async fn open(mut self, server: Uri, proxy: Option<&Intercept>) -> Result<Box<dyn Stream>, BoxError> {
        let Some(proxy) = proxy.filter(|_| !is_plain(&server)) else {
            let to = proxy.map_or(server, |forwards| forwards.uri().clone());
            return Ok(if is_plain(&to) {
                Box::new(self.tcp.call(to).await?)
            } else {
                Box::new(self.secure(self.tcp.clone()).await?.call(to).await?)
            });
        };
        let agent = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(AGENT))]);
        let below = self.secure(self.tcp.clone()).await?;
        let tunnel = Tunnel::new(proxy.uri().clone(), below).with_headers(agent);
        let tunnel = match proxy.basic_auth() {
            Some(auth) => tunnel.with_auth(auth.clone()),
            None => tunnel,
        };
        Ok(Box::new(self.secure(tunnel).await?.call(server).await?))
    }

    /// TLS over `below`'s connections. Another thread reads the certificates: a file may hang.
    async fn secure<T>(&self, below: T) -> Result<HttpsConnector<T>, BoxError> {
        let read = async || tokio::task::spawn_blocking(|| descriptors::creating(tls_config)).await;
        Ok(HttpsConnector::from((below, Arc::clone(self.tls.get_or_try_init(read).await?))))
    }
}

fn is_plain(server: &Uri) -> bool {
    server.scheme() == Some(&Scheme::HTTP)
}

impl Service<Uri> for Connector {
    type Response = Conn;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connector = self.clone();
        let (proxy, timeout) = (self.proxies.intercept(&server), self.timeout);
        Box::pin(async move {
            // A proxy without a tunnel forwards requests.
            let is_proxied = proxy.is_some() && is_plain(&server);
            let late = |_| BoxError::from(io::Error::from(io::ErrorKind::TimedOut));
            let opened = connector.open(server, proxy.as_ref());
            match (tokio::time::timeout(timeout, opened).await.map_err(late).flatten(), proxy) {
                (Ok(stream), _) => Ok(Conn { stream, is_proxied }),
                (Err(source), Some(proxy)) => Err(ThroughProxy { proxy: proxy.uri().clone(), source }.into()),
                (Err(error), None) => Err(error),
            }
        })
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<Conn, BoxError>> + Send>>;

/// A connection through a proxy failed.
#[derive(Debug)]
pub(super) struct ThroughProxy {
    pub(super) proxy: Uri,
    source: BoxError,
}

impl fmt::Display for ThroughProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "through the proxy {}", self.proxy)
    }
}

impl StdError for ThroughProxy {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

trait Stream: Read + Write + Connection + Send + Unpin {}
impl<T: Read + Write + Connection + Send + Unpin> Stream for T {}

/// A connection: with or without TLS, direct or through a proxy.
struct Conn {
    stream: Box<dyn Stream>,
    /// A proxy without a tunnel needs the absolute URL.
    is_proxied: bool,
}

impl Connection for Conn {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_proxied)
    }
}

impl Read for Conn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl Write for Conn {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("is_proxied", &self.is_proxied).finish_non_exhaustive()
    }
}

pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

const AGENT: &str = concat!("bowwave/", env!("CARGO_PKG_VERSION"));
/// Idle time before a keepalive probe, and between two probes.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Bytes of one read from a connection. Each connection holds one or two such buffers. More: up to
/// 64 connections take more memory, and bytes leave the processor's cache before they are copied.
/// Fewer: more system calls.
const READ_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;
    use crate::net::errors::request_error;
    use crate::net::runtime;

    /// What a proxy, or a server beside it, receives first when a client with this proxy requests
    /// `url`. `{}` in the URL is the server.
    fn received(url: &str) -> Vec<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let url = url.replace("{}", &format!("localhost:{}", address.port()));
        let proxy = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").unwrap();
            head
        });
        let proxies = Matcher::builder().all(format!("http://user:secret@{address}")).no("localhost").build();
        let http = Http::through(proxies, Duration::from_secs(10), 1);
        let mut request = Request::new(RequestBody::Nothing);
        *request.uri_mut() = url.parse().unwrap();
        runtime::wait(async move {
            http.request(request).await.ok();
            Ok(())
        })
        .unwrap();
        proxy.join().unwrap()
    }

    #[test]
    fn a_proxy_receives_an_absolute_url_and_credentials() {
        let head = received("http://a.example/object");
        assert_eq!(head[0], "GET http://a.example/object HTTP/1.1");
        assert!(head.contains(&"proxy-authorization: Basic dXNlcjpzZWNyZXQ=".to_owned()), "{head:?}");
    }

    #[test]
    fn https_goes_through_a_tunnel() {
        let head = received("https://a.example/object");
        assert_eq!(head[0], "CONNECT a.example:443 HTTP/1.1");
        assert!(head.iter().any(|line| line.ends_with("Basic dXNlcjpzZWNyZXQ=")), "{head:?}");
        assert!(head.iter().any(|line| line.to_lowercase().starts_with("user-agent: bowwave")), "{head:?}");
        assert!(!head.iter().any(|line| line.contains("/object")), "{head:?}");
    }

    #[test]
    fn a_proxy_that_is_down_is_named() {
        let proxies = Matcher::builder().all("http://user:secret@127.0.0.1:1").build();
        let http = Http::through(proxies, Duration::from_secs(10), 1);
        for scheme in ["http", "https"] {
            let (http, mut request) = (http.clone(), Request::new(RequestBody::Nothing));
            *request.uri_mut() = format!("{scheme}://a.example/").parse().unwrap();
            let error = runtime::wait(async move {
                let to = request.uri().clone();
                Ok(request_error("s3://b", &to, &http.request(request).await.unwrap_err()))
            });
            let error = error.unwrap().to_string();
            assert!(error.contains("a.example:"), "{scheme}: {error}");
            assert!(error.contains("through the proxy http://127.0.0.1:1/;"), "{scheme}: {error}");
        }
    }

    #[test]
    fn servers_that_the_environment_exempts_are_asked_directly() {
        let head = received("http://{}/object");
        assert_eq!(head[0], "GET /object HTTP/1.1");
        assert!(!head.iter().any(|line| line.contains("proxy")), "{head:?}");
    }

    #[test]
    fn certificates_are_read_for_https_alone() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let mut connector = Connector::new(Matcher::builder().build(), Duration::from_secs(10));
        let tls = Arc::clone(&connector.tls);
        let mut connects = |scheme: &str| {
            let opened = connector.call(format!("{scheme}://{server}/").parse().unwrap());
            runtime::wait(async move { Ok(opened.await.is_ok()) }).unwrap()
        };
        assert!(connects("http"));
        assert!(!tls.initialized());
        drop(listener);
        assert!(!connects("https"), "the server is gone");
        assert!(tls.initialized());
    }

    /// Regression: a limit for TCP alone let a silent proxy or TLS handshake hold an upload.
    #[test]
    fn a_handshake_that_no_one_answers_times_out() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = format!("https://{}/", listener.local_addr().unwrap());
        let http = Http::through(Matcher::builder().build(), Duration::from_millis(100), 1);
        let mut request = Request::new(RequestBody::Nothing);
        *request.uri_mut() = server.parse().unwrap();
        let error = runtime::wait(async move {
            let to = request.uri().clone();
            Ok(request_error("s3://b", &to, &http.request(request).await.unwrap_err()))
        });
        assert_eq!(error.unwrap().kind(), crate::ErrorKind::TimedOut);
    }
}
