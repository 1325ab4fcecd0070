//! Applies each fault to a response.

use std::io;
use std::time::Duration;

use super::answer::Answer;
use super::honest::{self, Setting, Tag, Validators};
use super::line::{Line, Next, has_body, whole};
use super::mode::{EndlessHead, ErrorBody, Fault, Location, Mode, Place, Slow, UploadFault, VersionFault};
use super::request::{Kind, Request};
use super::{framing, lists};

/// Responds to `request` according to `mode`.
pub(super) fn respond(line: &Line, request: &Request, mode: &Mode) -> io::Result<Next> {
    match mode.fault {
        Fault::Honest => honestly(line, request),
        Fault::Redirect(status, location) => redirect(line, request, status, location),
        Fault::Status(status, retry_after) => {
            let mut answer = Answer::error(status, "SlowDown");
            answer.set("Retry-After", retry_after.map(str::to_owned));
            line.answer(request, &answer)
        }
        Fault::Reset(place) => reset(line, request, place, mode),
        Fault::Refused => line.reset(),
        Fault::ErrorBody(status, body) => error_body(line, request, status, body),
        Fault::EndlessHead(EndlessHead::OneHeader) => {
            line.send(b"HTTP/1.1 200 OK\r\nX-Long: ")?;
            line.flood(&[b'x'; 1024])
        }
        Fault::EndlessHead(EndlessHead::ManyHeaders) => {
            line.send(b"HTTP/1.1 200 OK\r\n")?;
            line.flood(b"X-Many: header\r\n")
        }
        // HEAD reports the real length, so that only bodies can be missing.
        Fault::HugeLength if request.method == "HEAD" => honestly(line, request),
        Fault::HugeLength => {
            let answer = deed(line, request);
            line.send(answer.head_with("HTTP/1.1", "Content-Length: 4611686018427387904\r\n").as_bytes())?;
            line.hold()
        }
        Fault::Portal => {
            let answer = Answer::new(200).header("Content-Type", "text/html");
            line.answer(request, &answer.body(PORTAL.as_bytes().to_vec()))
        }
        Fault::Empty => line.answer(request, &Answer::new(200)),
        Fault::List(fault) if request.kind() == Kind::List => lists::respond(line, request, fault),
        Fault::List(_) => honestly(line, request),
        Fault::Version(fault) => version(line, request, fault),
        Fault::Framing(fault) => framing::respond(line, request, fault, mode),
        Fault::Slow(slow) => slowly(line, request, slow, mode),
        Fault::Upload(fault) => upload(line, request, fault),
        Fault::Flip => {
            let mut answer = deed(line, request);
            let at = at(mode, answer.body.len());
            if let Some(byte) = answer.body.get_mut(at) {
                *byte ^= 1;
            }
            line.answer(request, &answer)
        }
    }
}

/// Performs `request` and returns the correct response.
pub(super) fn deed(line: &Line, request: &Request) -> Answer {
    deed_with(line, request, Validators::RIGHT)
}

fn deed_with(line: &Line, request: &Request, validators: Validators) -> Answer {
    let mut inner = line.shared.inner();
    let setting = Setting { dialect: line.shared.dialect, validators, checksum: inner.checksum };
    honest::answer(&mut inner.bucket, request, setting)
}

fn honestly(line: &Line, request: &Request) -> io::Result<Next> {
    line.answer(request, &deed(line, request))
}

/// Offset in a body of `length` bytes where the fault strikes.
pub(super) fn at(mode: &Mode, length: usize) -> usize {
    mode.after.unwrap_or(length / 2).min(length)
}

fn redirect(line: &Line, request: &Request, status: u16, location: Location) -> io::Result<Next> {
    let (target, mark) = (&request.target, if request.target.contains('?') { '&' } else { '?' });
    let to = match location {
        Location::OtherHost => Some(format!("http://{}{target}", line.shared.other)),
        Location::SameHost if request.query("redirected").is_some() => return honestly(line, request),
        Location::SameHost => Some(format!("http://{}{target}{mark}redirected=1", line.shared.address)),
        Location::Loop => {
            let turn = request.query("turn").and_then(|turn| turn.parse::<u64>().ok()).unwrap_or(0) + 1;
            let path = target.split('?').next().unwrap_or_default();
            Some(format!("http://{}{path}?turn={turn}", line.shared.address))
        }
        Location::Missing => None,
        Location::Garbage => Some("ht!tp:/\\ [not a URL]".to_owned()),
        Location::File => Some("file:///etc/passwd".to_owned()),
    };
    let mut answer = Answer::new(status);
    answer.set("Location", to);
    line.answer(request, &answer)
}

fn reset(line: &Line, request: &Request, place: Place, mode: &Mode) -> io::Result<Next> {
    if place == Place::BeforeHead {
        return line.reset();
    }
    let answer = deed(line, request);
    let head = answer.head();
    match place {
        Place::InBody if !has_body(request, &answer) => return line.answer(request, &answer),
        Place::InBody => {
            line.send(head.as_bytes())?;
            line.send(&answer.body[..at(mode, answer.body.len())])?;
        }
        _ => line.send(&head.as_bytes()[..head.len() / 2])?,
    }
    line.reset()
}

fn error_body(line: &Line, request: &Request, status: u16, body: ErrorBody) -> io::Result<Next> {
    let answer = Answer::error(status, "Endless");
    if request.method == "HEAD" {
        return line.answer(request, &answer);
    }
    let text = b"<Error><Code>Endless</Code><Message>on and on and on</Message></Error>\n";
    let framing = match body {
        ErrorBody::Huge => "Content-Length: 500000000\r\n",
        ErrorBody::Chunked => "Transfer-Encoding: chunked\r\n",
        ErrorBody::Unannounced => "Connection: close\r\n",
        ErrorBody::Drip => "Content-Length: 100000\r\n",
    };
    line.send(answer.head_with("HTTP/1.1", framing).as_bytes())?;
    match body {
        // The client should disconnect before the announced end.
        ErrorBody::Huge | ErrorBody::Unannounced => line.flood(text),
        ErrorBody::Chunked => {
            line.flood(&[format!("{:x}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat())
        }
        ErrorBody::Drip => {
            line.drip(&[b'x'; 100_000], 1, DRIP)?;
            Ok(Next::Request)
        }
    }
}

fn version(line: &Line, request: &Request, fault: VersionFault) -> io::Result<Next> {
    use VersionFault as V;
    let (etag, modified, conditions) = match fault {
        V::AfterHead | V::AfterGet | V::InBody => (Tag::Right, true, true),
        V::SameWeakTag => (Tag::Constant("W/\"same\""), true, false),
        V::TagDroppedInGets => (Tag::AbsentInGets, true, false),
        V::ModifiedAlone => (Tag::Absent, true, true),
        V::ModifiedAloneUnconditional => (Tag::Absent, true, false),
        V::NoValidators | V::NoValidatorsOtherSize => (Tag::Absent, false, false),
        V::Unconditional => (Tag::Right, true, false),
        V::SameTagOtherSize => (Tag::Constant("\"same\""), true, false),
    };
    let answer = deed_with(line, request, Validators { etag, modified, conditions });
    let succeeded = matches!(answer.status, 200 | 206);
    let Some(key) = honest::key(request).filter(|_| succeeded) else { return line.answer(request, &answer) };
    let triggers = match fault {
        V::AfterHead => request.kind() == Kind::Head,
        V::NoValidators => false,
        _ => request.kind() == Kind::Get && line.shared.inner().replaced.insert(key.to_owned()),
    };
    if triggers && fault == V::InBody {
        line.send(answer.head().as_bytes())?;
        line.send(&answer.body[..answer.body.len() / 2])?;
        line.shared.inner().bucket.replace(key, 0);
        return line.close();
    }
    let next = line.answer(request, &answer)?;
    if triggers {
        let shorter = if matches!(fault, V::NoValidatorsOtherSize | V::SameTagOtherSize) { 1000 } else { 0 };
        line.shared.inner().bucket.replace(key, shorter);
    }
    Ok(next)
}

fn slowly(line: &Line, request: &Request, slow: Slow, mode: &Mode) -> io::Result<Next> {
    let answer = match slow {
        Slow::BeforeHead => return line.hold(),
        // Uploads with a body are handled elsewhere.
        Slow::HalfUpload | Slow::UnreadUpload => return honestly(line, request),
        _ => deed(line, request),
    };
    let head = answer.head();
    if slow == Slow::HeadDrip {
        line.drip(head.as_bytes(), 1, DRIP)?;
        return Ok(Next::Close);
    }
    if !has_body(request, &answer) {
        return line.answer(request, &answer);
    }
    line.send(head.as_bytes())?;
    match slow {
        Slow::HalfBody => line.send(&answer.body[..at(mode, answer.body.len())])?,
        Slow::BodyDrip => line.drip(&answer.body, 1, DRIP)?,
        Slow::Trickle => line.drip(&answer.body, 10, Duration::from_millis(100))?,
        _ => {}
    }
    line.hold()
}

fn upload(line: &Line, request: &Request, fault: UploadFault) -> io::Result<Next> {
    let is_completion = request.kind() == Kind::Post && request.query("uploadId").is_some();
    let is_put = request.kind() == Kind::Put;
    // Azure completes uploads by PUT.
    let is_completion = is_completion || request.query("comp") == Some("blocklist");
    let answer = match fault {
        UploadFault::ErrorIn200 if is_completion => {
            let mut answer = Answer::error(200, "InternalError");
            answer.set("Content-Type", Some("application/xml".to_owned()));
            answer
        }
        UploadFault::NoTag | UploadFault::WrongTag if is_put => {
            let mut answer = deed(line, request);
            answer.set("ETag", (fault == UploadFault::WrongTag).then(honest::wrong_tag));
            answer
        }
        UploadFault::DoneBut412 if is_completion || (is_put && request.query("uploadId").is_none()) => {
            let _done = deed(line, request);
            Answer::error(412, "PreconditionFailed")
        }
        UploadFault::DoneBut404 if is_completion => {
            let _done = deed(line, request);
            Answer::error(404, "NoSuchUpload")
        }
        UploadFault::Discarded if is_completion || (is_put && request.query("uploadId").is_none()) => {
            let answer = deed(line, request);
            if let Some(key) = honest::key(request) {
                line.shared.inner().bucket.remove(key);
            }
            answer
        }
        _ => deed(line, request),
    };
    line.send(&whole(request, &answer))?;
    Ok(Next::Request)
}

/// Pause between two bytes of a dripping response.
const DRIP: Duration = Duration::from_millis(800);
const PORTAL: &str = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body><h1>Welcome</h1>\
                      <p>Accept the terms to use this network.<br></body></html>\n";
