//! Reads of ranges of one version of an object over HTTP: a file of a web server or an object of a
//! bucket.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
#[cfg(feature = "s3")]
use std::time::{Duration, Instant};

use bowwave_core::network::{Expected, Fault, Strength, Validators};
use bytes::Bytes;
use futures_util::future::{Either, join, select};
#[cfg(feature = "s3")]
use http::header::LAST_MODIFIED;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderName, RANGE};
use http::{Method, StatusCode};
#[cfg(feature = "s3")]
use object_store::path::Path as Key;
use tokio::sync::{OnceCell, oneshot};
use url::Url;

use super::call::by_deadline;
use super::checksum::{self, Checksum, Checksums, Verifier};
#[cfg(feature = "s3")]
use super::cloud::{Cloud, Kind};
use super::errors::{PROXY, status_error};
use super::exchange::{Client, Incoming, Next};
use super::first::{Body, Claim, First};
use super::http as web;
#[cfg(feature = "s3")]
use super::listing;
#[cfg(feature = "s3")]
use super::meta::{Meta, Stored};
use super::runtime::{self, AsyncWork, Gate};
use super::validator::{condition, response};
#[cfg(feature = "s3")]
use super::validator::{rfc1123, text};
use super::whole::{Unranged, WholeFile};
#[cfg(feature = "s3")]
use super::wire::{Outgoing, explained};
#[cfg(feature = "s3")]
use crate::EntryKind;
use crate::{Error, ErrorKind, Identity, Object, ReadBuf, ReadSink, Result, generate, path};

/// One version of an object; reads never return bytes of another version, as far as the server's
/// validators tell.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) place: Arc<str>,
    pub(super) identity: Identity,
    /// With the size.
    pub(super) validators: Validators,
    /// `Content-Encoding` as a HEAD has shown it; empty for an object of a listing until it is
    /// needed.
    pub(super) coding: OnceCell<Option<String>>,
    pub(super) source: Source,
    pub(super) checksums: Checksums,
    /// A request has just shown it.
    pub(super) is_confirmed: bool,
    /// Bytes that came with the open.
    pub(super) first: First,
}

/// Location of a version.
#[derive(Debug)]
pub(super) enum Source {
    /// A URL of a web server.
    Web(Client, Url, Box<Unranged>),
    /// A key of a bucket.
    #[cfg(feature = "s3")]
    Bucket(Arc<Cloud>, Key),
}

impl Source {
    pub(super) fn client(&self) -> &Client {
        match self {
            Self::Web(client, ..) => client,
            #[cfg(feature = "s3")]
            Self::Bucket(cloud, _) => &cloud.wire.client,
        }
    }
}

impl Version {
    /// The version of an object of a bucket that `meta` describes.
    #[cfg(feature = "s3")]
    pub(super) fn of_object(cloud: &Arc<Cloud>, place: &Arc<str>, meta: Meta) -> Self {
        Self {
            place: Arc::clone(place),
            is_confirmed: meta.is_confirmed(),
            identity: meta.identity(),
            validators: meta.version,
            coding: OnceCell::new_with(meta.head.map(|_| meta.coding)),
            source: Source::Bucket(Arc::clone(cloud), meta.key),
            checksums: meta.head.map_or_else(Checksums::default, |_| Checksums::of_whole(meta.checksum)),
            first: First::default(),
        }
    }

    /// Metadata of the object, if it is in a bucket.
    #[cfg(feature = "s3")]
    pub(super) fn meta(&self) -> Option<Meta> {
        let Source::Bucket(_, key) = &self.source else { return None };
        let (key, version) = (key.clone(), self.validators.clone());
        let head = self.coding.get().map(|_| Instant::now());
        let coding = self.coding.get().cloned().flatten();
        let checksum = self.checksums.whole().cloned();
        let (size, headers) = (self.size(), HeaderMap::new());
        Some(Meta { key, size, version, modified: None, coding, checksum, headers, head, known: None })
    }

    pub(super) fn size(&self) -> u64 {
        self.identity.size
    }

    /// Whether reads are verified by checksums, if the store has them.
    fn has_checksums(&self) -> bool {
        match &self.source {
            Source::Web(..) => false,
            #[cfg(feature = "s3")]
            Source::Bucket(cloud, _) => cloud.verify,
        }
    }

    /// The checksums of the parts; none if the store does not have them.
    ///
    /// # Errors
    /// If the request failed and a retry may help. After other errors there are no checksums.
    pub(super) async fn part_checksums(&self) -> Result<Vec<(Range<u64>, Checksum)>> {
        match &self.source {
            Source::Web(..) => Ok(Vec::new()),
            #[cfg(feature = "s3")]
            Source::Bucket(cloud, key) => {
                let tag = self.validators.strong().filter(|_| cloud.kind == Kind::Amazon);
                let Some(tag) = tag else { return Ok(Vec::new()) };
                match cloud.part_table(key.as_ref()).await {
                    Ok(table) => {
                        let found = listing::part_checksums(&table, tag.trim_matches('"'), self.size());
                        Ok(found.unwrap_or_default())
                    }
                    Err(error) if error.is_retryable() => Err(error),
                    Err(_) => Ok(Vec::new()),
                }
            }
        }
    }

    /// Fails if versions must be distinguishable and are not.
    pub(super) fn require(&self, require_version: bool) -> Result<()> {
        let lack = match self.validators.strength() {
            Strength::Strong => return Ok(()),
            Strength::Dated => "the store gives no strong entity tag (ETag), only a time in seconds",
            Strength::None => "the store gives neither an entity tag (ETag) nor a time of modification",
        };
        if !require_version {
            return Ok(());
        }
        let message = format!(
            "{}: {lack}, so that bytes of two versions may mix; use another server, or leave out --require-version",
            self.place
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Reads through `gate`.
    pub(super) fn read(self: &Arc<Self>, gate: &Gate, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        let len = generate::within(self.size(), offset, buf.len());
        let intake = Intake { buf, len, received: 0, reported: 0, sink };
        if len == 0 {
            return intake.end(Ok(()));
        }
        // Claims have the order of the calls. The reads may run in another order.
        let claim = self.first.claim(&(offset..offset + len as u64));
        let fetch = Fetch { version: Arc::clone(self), offset, claim, claimed: Ok(None), intake };
        if let Err((fetch, error)) = gate.spawn(fetch) {
            fetch.intake.end(Err(error));
        }
    }

    /// The bytes of a range within the object.
    pub(super) async fn bytes(&self, range: Range<u64>) -> Result<Bytes> {
        let client = self.source.client();
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let bytes = client.persist(&self.place, || async {
            let (incoming, _) = self.get(&range).await?;
            let bytes = incoming.collect(len).await?;
            if bytes.len() == len {
                return Ok(bytes);
            }
            Err(Error::new(
                ErrorKind::Truncated,
                format!("{}: the body ended early; try again later", self.place),
            ))
        });
        bytes.await
    }

    /// Requests a range, and checks the response.
    async fn get(&self, range: &Range<u64>) -> Result<(Incoming, Verifier)> {
        let whole = *range == (0..self.size());
        let checksums = self.has_checksums();
        // A compressed body has other offsets.
        let mut headers = vec![(ACCEPT_ENCODING, "identity".to_owned())];
        // Servers send an object's checksum only with the whole object. Without a strong ETag a
        // range is requested, because its `Content-Range` has the object's size.
        if whole && checksums && self.validators.strong().is_some() {
            headers.push((checksum::MODE, "ENABLED".to_owned()));
        } else {
            headers.push((RANGE, format!("bytes={}-{}", range.start, range.end - 1)));
        }
        if let Some((name, value)) = condition(&self.validators) {
            headers.push((name, value));
        }
        // A whole object comes with its checksum. For other ranges, it is requested meanwhile.
        let incoming = if self.coding.get().is_none() && checksums && !whole {
            // After an error the next request learns it.
            let (incoming, _learned) = join(self.send(&headers), self.learn()).await;
            incoming?
        } else {
            self.send(&headers).await?
        };
        // Is it the label of the object, or did a proxy encode the body?
        if self.coding.get().is_none() && incoming.headers().contains_key(CONTENT_ENCODING) {
            self.learn().await?;
        }
        let (status, found) = (incoming.status(), incoming.headers());
        let expected = Expected { version: self.validators.clone(), start: range.start, end: range.end };
        let coding = self.coding.get().and_then(Option::as_deref);
        let checked = expected.check(&response(status.as_u16(), found, coding));
        if let Err(fault) = checked {
            return Err(self.refuse(fault, range, incoming).await);
        }
        // Only the end of such a body shows its size, but its bytes are passed on before the end.
        if status == StatusCode::OK
            && found.get(CONTENT_LENGTH).is_none()
            && self.validators.strong().is_none()
        {
            let message =
                format!("{}: 200 without a Content-Length, of an object without a strong ETag", self.place);
            return Err(Error::new(ErrorKind::Protocol, message));
        }
        #[cfg(feature = "s3")]
        if let (Source::Bucket(cloud, key), Some(etag)) = (&self.source, self.validators.strong()) {
            let modified = text(found, LAST_MODIFIED).as_deref().and_then(rfc1123);
            let stored = cloud.attributes.then(|| Stored::of(found, EntryKind::File));
            cloud.names.learn(key.as_ref(), etag, modified, stored);
        }
        let verifier = match checksums {
            true => self.checksums.verifier(self, range, incoming.headers()).await,
            false => Verifier::default(),
        };
        if self.checksums.is_damaged() && !whole {
            let why =
                "bytes did not match the store's checksum, and no more are read unverified; open it again";
            return Err(Error::new(ErrorKind::Corrupt, format!("{}: {why}", self.place)).retryable(false));
        }
        Ok((incoming, verifier))
    }

    /// Requests coding and checksum of a version that a listing has shown, once. An error is not
    /// remembered.
    async fn learn(&self) -> Result<()> {
        match &self.source {
            Source::Web(..) => Ok(()),
            #[cfg(feature = "s3")]
            Source::Bucket(cloud, key) => {
                let learn = || async {
                    let found = cloud.head_once(key, &self.place).await?;
                    let found = found.filter(|found| found.version.etag == self.validators.etag);
                    let found = found.ok_or_else(|| path::changed(&self.place))?;
                    self.checksums.learn(found.checksum);
                    Ok(found.coding)
                };
                self.coding.get_or_try_init(learn).await.map(drop)
            }
        }
    }

    /// All bytes, from a server without range requests.
    async fn whole(self: &Arc<Self>) -> Result<Arc<WholeFile>> {
        let (size, place) = (self.size(), &self.place);
        let most = self.unranged().map_or(0, |unranged| unranged.wholes.file_bytes_max);
        if size > most {
            let message = format!(
                "{place}: the server does not support range requests, and {} is too large to be read at once \
                 (--no-range-max {}); raise it, download the file with curl, or use another server",
                crate::size_text(size),
                crate::size_text(most)
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let (sender, receiver) = oneshot::channel();
        let version = Arc::clone(self);
        // In its own task: other readers need the bytes, even if the first one is cancelled.
        runtime::spawn(async move {
            let Some(unranged) = version.unranged() else { return };
            let whole = unranged.whole(size, || version.bytes(0..size)).await;
            sender.send(whole).ok();
        });
        let broken = || Error::new(ErrorKind::Io, format!("{place}: a network task broke off"));
        receiver.await.unwrap_or_else(|_| Err(broken()))
    }

    fn unranged(&self) -> Option<&Unranged> {
        match &self.source {
            Source::Web(_, _, unranged) => Some(&**unranged),
            #[cfg(feature = "s3")]
            Source::Bucket(..) => None,
        }
    }

    fn lacks_ranges(&self) -> bool {
        self.unranged().is_some_and(Unranged::lacks_ranges)
    }

    async fn send(&self, headers: &[(HeaderName, String)]) -> Result<Incoming> {
        match &self.source {
            Source::Web(client, url, _) => web::send(client, &self.place, Method::GET, url, headers).await,
            #[cfg(feature = "s3")]
            Source::Bucket(cloud, key) => {
                let request = Outgoing { headers, ..Outgoing::new(Method::GET, key.as_ref()) };
                cloud.wire.send(request, cloud.wire.client.limits.timeout).await
            }
        }
    }

    /// The error for a wrong response.
    async fn refuse(&self, fault: Fault, range: &Range<u64>, incoming: Incoming) -> Error {
        let place = &self.place;
        #[cfg(feature = "s3")]
        if let Source::Bucket(cloud, key) = &self.source
            && matches!(incoming.status(), StatusCode::NOT_FOUND | StatusCode::PRECONDITION_FAILED)
                | (fault == Fault::Changed)
        {
            cloud.names.forget(key.as_ref(), Duration::ZERO);
        }
        let (status, found) =
            (incoming.status(), response(incoming.status().as_u16(), incoming.headers(), None));
        let protocol = |what: String| Error::new(ErrorKind::Protocol, format!("{place}: {what}"));
        match fault {
            Fault::Changed => path::changed(place),
            Fault::Status if status == StatusCode::PRECONDITION_FAILED => path::changed(place),
            Fault::Status => match (&self.source, status_error(place, status, incoming.headers())) {
                #[cfg(feature = "s3")]
                (Source::Bucket(..), Some(_)) => explained(place, incoming).await,
                (_, Some(error)) => error,
                (_, None) => {
                    protocol(format!("{status} is not a valid response to a range request; {PROXY}"))
                }
            },
            Fault::Unversioned => protocol(format!(
                "the server leaves out the ETag or Last-Modified that it sent at first; {PROXY}"
            )),
            Fault::NoRanges => {
                if let Some(unranged) = self.unranged() {
                    unranged.set_lacks_ranges();
                }
                let remedy = "download the file with curl, or use another server";
                protocol(format!("the server does not support range requests; {remedy}"))
            }
            Fault::Unplaced => protocol(format!("206 without a Content-Range; {PROXY}")),
            Fault::OtherRange => {
                let sent = match found.range {
                    Some((first, end)) => format!("bytes {first}-{}", end.saturating_sub(1)),
                    None => "no range".to_owned(),
                };
                let (first, last) = (range.start, range.end - 1);
                protocol(format!("the server sends {sent} instead of bytes {first}-{last}; {PROXY}"))
            }
            Fault::Encoded => {
                protocol(format!("the body is encoded (Content-Encoding), which was not requested; {PROXY}"))
            }
            Fault::Length(length) => {
                let bytes = range.end - range.start;
                let message =
                    format!("{place}: the server announces {length} bytes instead of {bytes}; {PROXY}");
                // A shorter body may be a proxy's lost connection; a longer one is a violation.
                let kind = if length < bytes { ErrorKind::Truncated } else { ErrorKind::Protocol };
                Error::new(kind, message)
            }
        }
    }
}

/// An object open for reading.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) version: Arc<Version>,
    pub(super) gate: Gate,
}

impl Object for Remote {
    fn identity(&self) -> &Identity {
        &self.version.identity
    }

    fn is_confirmed(&self) -> bool {
        self.version.is_confirmed
    }

    fn read(&self, offset: u64, buf: ReadBuf, sink: Box<dyn ReadSink>) {
        self.version.read(&self.gate, offset, buf, sink);
    }

    fn recall(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (version, range) = (Arc::clone(&self.version), offset..offset.saturating_add(bytes.len() as u64));
        if !version.has_checksums() {
            return Ok(());
        }
        let mut verifier = runtime::wait(async move {
            Ok(version.checksums.verifier(&version, &range, &HeaderMap::new()).await)
        })?;
        let received = verifier.add(bytes);
        let recorded =
            || self.version.checksums.record(&self.version, &Ok(()), verifier.partial_sums(offset));
        let corrupt = |what| Error::new(ErrorKind::Corrupt, format!("{}: {what}", self.version.place));
        received.and_then(|()| recorded()).map_err(|what| corrupt(what).retryable(false))
    }
}

struct Fetch {
    version: Arc<Version>,
    offset: u64,
    /// Its part of the bytes that came with the open.
    claim: Option<Claim>,
    /// The body of that part, or why there is none.
    claimed: Result<Option<Body>>,
    intake: Intake,
}

impl AsyncWork for Fetch {
    /// Waits until the read of the part before this one passes the body on.
    async fn ready(&mut self) {
        let Some(claim) = &mut self.claim else { return };
        let unwanted = self.intake.sink.unwanted();
        let deadline = self.intake.sink.deadline().map(Into::into);
        let body = by_deadline(deadline, &self.version.place, async { Ok(claim.body().await) });
        self.claimed = runtime::unless(unwanted, body).await.unwrap_or(Ok(None));
    }

    async fn run(mut self) {
        let unwanted = self.intake.sink.unwanted();
        // A dropped request closes its connection, and its sink gets no more events.
        if let Some(result) = runtime::unless(unwanted, self.fetch()).await {
            self.intake.end(result);
        }
    }
}

impl Fetch {
    async fn fetch(&mut self) -> Result<()> {
        let version = Arc::clone(&self.version);
        let range = self.offset..self.offset + self.intake.len as u64;
        if let Some(claim) = self.claim.take() {
            let rest = claim.range.end..range.end;
            if rest.is_empty() {
                if self.take(&version, claim).await? {
                    return Ok(());
                }
            } else {
                // The rest is requested meanwhile.
                let request = self.request(&version, rest.clone());
                let (taken, requested) = join(self.take(&version, claim), request).await;
                if taken? {
                    return self.receive_response(&version, rest, requested?).await;
                }
            }
        }
        let request = pin!(self.request(&version, range.clone()));
        let requested = match select(request, pin!(self.intake.populate())).await {
            Either::Left((requested, _)) => requested,
            Either::Right(((), request)) => request.await,
        };
        self.receive_response(&version, range, requested?).await
    }

    /// Requests a range; `None` from a server without range requests.
    fn request(
        &self,
        version: &Arc<Version>,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Option<(Incoming, Verifier)>>> + use<> {
        let version = Arc::clone(version);
        let deadline = self.intake.sink.deadline().map(Into::into);
        async move {
            if version.lacks_ranges() {
                return Ok(None);
            }
            match by_deadline(deadline, &version.place, version.get(&range)).await {
                Err(_) if version.lacks_ranges() => Ok(None),
                got => got.map(Some),
            }
        }
    }

    /// Receives the response to a request of `range`.
    async fn receive_response(
        &mut self,
        version: &Arc<Version>,
        range: Range<u64>,
        response: Option<(Incoming, Verifier)>,
    ) -> Result<()> {
        let Some((incoming, verifier)) = response else {
            let deadline = self.intake.sink.deadline().map(Into::into);
            let whole = by_deadline(deadline, &version.place, version.whole()).await?;
            let (start, end) = (range.start as usize, range.end as usize);
            self.intake.buf.copy_in(self.intake.received, &whole.bytes[start..end]);
            self.intake.received += end - start;
            return Ok(());
        };
        let mut body = Body::new(incoming, range.end - range.start, None);
        self.receive(version, range, &mut body, verifier).await
    }

    /// Takes bytes that came with the open; `false` if the read before failed or was dropped.
    async fn take(&mut self, version: &Arc<Version>, claim: Claim) -> Result<bool> {
        let Some(mut body) = std::mem::replace(&mut self.claimed, Ok(None))? else { return Ok(false) };
        body.resume();
        let verifier = match version.has_checksums() {
            true => version.checksums.verifier(version, &claim.range, &HeaderMap::new()).await,
            false => Verifier::default(),
        };
        self.receive(version, claim.range.clone(), &mut body, verifier).await?;
        claim.pass(body);
        Ok(true)
    }

    /// Receives the bytes `range` of a body, and verifies them.
    async fn receive(
        &mut self,
        version: &Version,
        range: Range<u64>,
        body: &mut Body,
        mut verifier: Verifier,
    ) -> Result<()> {
        let until = (range.end - self.offset) as usize;
        let mut received = self.intake.receive(&version.place, body, until, &mut verifier).await;
        let (traffic, compared) = (&version.source.client().traffic, verifier.has_compared());
        let recorded = version.checksums.record(version, &received, verifier.partial_sums(range.start));
        if let (Ok(()), Err(what)) = (&received, recorded) {
            let message = format!("{}: {what}", version.place);
            received = Err(Error::new(ErrorKind::Corrupt, message).retryable(false));
        }
        match &received {
            Ok(()) if compared => {
                version.checksums.verified();
                traffic.count(|stats| stats.verified += 1);
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                traffic.count(|stats| stats.corrupt += 1);
            }
            Ok(()) => {}
            Err(error) => traffic.failed(error.kind()),
        }
        received
    }
}

/// Copies the bodies of responses into the lent buffer, reports progress, and ends the read.
struct Intake {
    buf: ReadBuf,
    /// Expected bytes.
    len: usize,
    /// Bytes received.
    received: usize,
    /// Bytes of the last progress report.
    reported: usize,
    sink: Box<dyn ReadSink>,
}

impl Intake {
    /// Receives bytes of a body until the buffer has `until`. `place` names the object in errors.
    /// Bytes under a checksum are reported once they are verified.
    async fn receive(
        &mut self,
        place: &str,
        body: &mut Body,
        until: usize,
        verifier: &mut Verifier,
    ) -> Result<()> {
        let start = self.received;
        let mut deadline = self.sink.deadline();
        // The end of the body shows that it has no more than it announced.
        while self.received < until || body.rest() == 0 {
            let bytes = match body.next(deadline).await {
                // All bytes arrived: the connection's end does not matter.
                Err(_) if self.received == until => break,
                Err(error) => {
                    self.report(start, verifier);
                    return Err(error);
                }
                Ok(Next::Bytes(bytes)) => bytes,
                Ok(Next::End) => break,
                Ok(Next::Due) => {
                    deadline = self.sink.deadline();
                    continue;
                }
            };
            if bytes.len() as u64 > body.rest() {
                let message =
                    format!("{place}: the body is longer than the {} bytes it announced", until - start);
                return Err(Error::new(ErrorKind::Protocol, message));
            }
            let bytes = body.take(bytes, until - self.received);
            self.buf.copy_in(self.received, &bytes);
            self.received += bytes.len();
            verifier
                .add(&bytes)
                .map_err(|what| Error::new(ErrorKind::Corrupt, format!("{place}: {what}")))?;
            if self.received - self.reported >= STEP_BYTES && self.received < self.len {
                self.report(start, verifier);
            }
        }
        if self.received < until {
            self.report(start, verifier);
            let (received, len) = (self.received - start, until - start);
            let message = format!("{place}: the body ended after {received} of {len} bytes");
            return Err(Error::new(ErrorKind::Truncated, message));
        }
        Ok(())
    }

    /// Takes the memory of the bytes from the system, while the store works on the request.
    async fn populate(&mut self) {
        // Memory in many segments was used before.
        if self.len - self.received < POPULATE_MIN * self.buf.segments().len() {
            return;
        }
        for start in (self.received..self.len).step_by(POPULATE_BYTES) {
            // Others first: they send requests, and receive bytes.
            tokio::task::yield_now().await;
            if !self.buf.populate(start..self.len.min(start + POPULATE_BYTES)) {
                break;
            }
        }
    }

    /// Ends the read: with all bytes, or with an error.
    fn end(self, result: Result<()>) {
        let received = self.received;
        self.sink.done(self.buf, result.map(|()| received));
    }

    /// Reports progress. `start`: bytes in the buffer before this body.
    fn report(&mut self, start: usize, verifier: &Verifier) {
        let known = start + verifier.known(self.received - start);
        if known > self.reported {
            self.reported = known;
            self.sink.progress(known);
        }
    }
}

/// Least bytes of a segment, on average, whose memory is taken before they come. Smaller: more
/// system calls. Larger: more page faults.
const POPULATE_MIN: usize = 64 << 10;
/// Bytes whose memory is taken at once. Smaller: more system calls. Larger: others wait longer.
const POPULATE_BYTES: usize = 256 << 10;
/// Bytes between two progress reports. Smaller: more wake-ups. Larger: readers wait longer.
const STEP_BYTES: usize = 64 << 10;
