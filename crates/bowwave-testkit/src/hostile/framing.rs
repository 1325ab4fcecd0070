//! Responses that contradict themselves or the request.

use std::io;

use super::answer::Answer;
use super::faults::{at, deed};
use super::honest;
use super::line::{Line, Next, has_body, whole};
use super::mode::{Framing, Mode};
use super::request::Request;

pub(super) fn respond(line: &Line, request: &Request, fault: Framing, mode: &Mode) -> io::Result<Next> {
    if fault == Framing::InformationalFlood {
        return line.flood(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n");
    }
    let answer = match fault {
        Framing::Whole200 => {
            let headers = request.headers.iter().filter(|(name, _)| name != "range").cloned().collect();
            let (method, path) = (request.method.clone(), request.path.clone());
            deed(line, &Request { method, path, headers, ..Request::default() })
        }
        _ => deed(line, request),
    };
    let has_body = has_body(request, &answer);
    match fault {
        Framing::OtherRange
        | Framing::OtherTotal
        | Framing::ShortRange
        | Framing::Part200
        | Framing::Gzip
        | Framing::Multipart => line.answer(request, &ranged(line, request, answer, fault)),
        Framing::ShortBody if has_body => {
            line.send(answer.head().as_bytes())?;
            line.send(&answer.body[..at(mode, answer.body.len())])?;
            line.close()
        }
        Framing::LongBody if has_body => {
            line.send(&whole(request, &answer))?;
            line.send(&[b'x'; 1000])?;
            Ok(Next::Request)
        }
        Framing::TwoLengths => {
            let length = answer.body.len();
            let framing = format!("Content-Length: {length}\r\nContent-Length: {}\r\n", length / 2 + 1);
            line.send(answer.head_with("HTTP/1.1", &framing).as_bytes())?;
            if has_body {
                line.send(&answer.body)?;
            }
            line.close()
        }
        Framing::ChunkedGarbage if has_body => {
            line.send(answer.head_with("HTTP/1.1", "Transfer-Encoding: chunked\r\n").as_bytes())?;
            line.send(b"zz\r\nnot a chunk\r\n-1\r\n\r\n")?;
            line.close()
        }
        Framing::Http09 | Framing::Http10 => old(line, &answer, has_body, fault),
        Framing::HeaderGarbage => {
            let head = answer.head().replacen("\r\n", "\r\n\u{1}\u{2} garbage without a colon\r\n", 1);
            line.send(head.as_bytes())?;
            if has_body {
                line.send(&answer.body)?;
            }
            line.close()
        }
        Framing::ExtraResponse => {
            let mut extra = answer.clone();
            extra.body.iter_mut().for_each(|byte| *byte ^= 0xff);
            line.send(&[whole(request, &answer), whole(request, &extra)].concat())?;
            Ok(Next::Request)
        }
        _ => line.answer(request, &answer),
    }
}

/// Sends a response of an older HTTP version, then closes the connection.
fn old(line: &Line, answer: &Answer, has_body: bool, version: Framing) -> io::Result<Next> {
    if version == Framing::Http10 {
        let framing = format!("Content-Length: {}\r\nConnection: close\r\n", answer.body.len());
        line.send(answer.head_with("HTTP/1.0", &framing).as_bytes())?;
    }
    if has_body {
        line.send(&answer.body)?;
    }
    line.close()
}

/// Makes the response to a range request wrong; leaves other responses unchanged.
fn ranged(line: &Line, request: &Request, mut answer: Answer, fault: Framing) -> Answer {
    let inner = line.shared.inner();
    let Some(stored) = honest::key(request).and_then(|key| inner.bucket.get(key)) else { return answer };
    let size = stored.bytes.len();
    let Some(Ok((from, end))) = request.range(size).filter(|_| answer.status == 206) else { return answer };
    match fault {
        Framing::OtherRange => {
            answer.set("Content-Range", Some(format!("bytes {}-{end}/{}", from + 1, size.max(end + 1))));
            answer.body.rotate_left(1);
        }
        Framing::OtherTotal => {
            answer.set("Content-Range", Some(format!("bytes {from}-{}/{}", end - 1, size + 7)));
        }
        Framing::ShortRange => {
            let end = from + (end - from).div_ceil(2);
            answer.set("Content-Range", Some(format!("bytes {from}-{}/{size}", end - 1)));
            answer.body.truncate(end - from);
        }
        Framing::Part200 => {
            answer.status = 200;
            answer.set("Content-Range", None);
        }
        Framing::Gzip => {
            answer.set("Content-Encoding", Some("gzip".to_owned()));
            answer.body.iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        _ => {
            let range = answer.get("Content-Range").unwrap_or_default().to_owned();
            let head = format!("\r\n--frontier\r\nContent-Range: {range}\r\n\r\n");
            answer.body = [head.as_bytes(), &answer.body, b"\r\n--frontier--\r\n"].concat();
            answer.set("Content-Range", None);
            answer.set("Content-Type", Some("multipart/byteranges; boundary=frontier".to_owned()));
        }
    }
    answer
}
