//! Wrappers in URLs: `disk:directory=/var/cache/x,size=9GiB:URL`, `throttle:rate=9MB/s:URL`,
//! `limit:requests=4:URL`, `fault:errors=0.01,seed=7:URL`.

use std::path::PathBuf;
use std::sync::Arc;

use super::{DiskCache, Fault, Faults, Limit, Throttle};
use crate::url::{invalid, pairs};
use crate::{Backend, ErrorKind, Options, Result, open_url, parse_duration, parse_rate, parse_size};

/// Opens the wrapper `scheme`; `rest` has its options and the URL below.
pub(crate) fn open(url: &str, scheme: &str, rest: &str, options: &Options) -> Result<Arc<dyn Backend>> {
    let with_comma = format!(",{rest}");
    let (pairs, after) = pairs(url, &with_comma)?;
    let inner = after.strip_prefix(':').filter(|inner| !inner.is_empty());
    let inner = inner.ok_or_else(|| invalid(format!("{url}: no store follows; such as {scheme}:…:/data")))?;
    let wrap = pairs
        .into_iter()
        .try_fold(Wrap::default(), |wrap, (key, value)| wrap.with(url, scheme, key, value))?;
    let missing = |what: &str| invalid(format!("{url}: {scheme} wants `{what}`"));
    // A bad option is reported before the store is opened, which may take long.
    match scheme {
        "disk" => {
            let directory = wrap.directory.ok_or_else(|| missing("directory=/var/cache/bowwave"))?;
            let size = wrap.size.ok_or_else(|| missing("size=10GiB"))?;
            // As the stores read it: two servers with equal bucket names have different objects.
            let variable = |name: &&str| std::env::var(name).ok();
            let endpoint = options.endpoint.clone().or_else(|| ENDPOINTS.iter().find_map(variable));
            let opened = (inner, endpoint.as_deref());
            Ok(Arc::new(DiskCache::of_url(open_url(inner, options)?, opened, &directory, size)?))
        }
        "throttle" => {
            let rate = wrap.rate.ok_or_else(|| missing("rate=9MB/s"))?;
            Ok(Arc::new(Throttle::new(open_url(inner, options)?, rate)?))
        }
        "limit" => {
            let requests = wrap.requests.ok_or_else(|| missing("requests=4"))?;
            Ok(Arc::new(Limit::new(open_url(inner, options)?, requests)))
        }
        _ => Ok(Arc::new(Fault::new(open_url(inner, options)?, wrap.faults)?)),
    }
}

/// Variables that name a server in place of a cloud's own.
const ENDPOINTS: [&str; 5] =
    ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL"];

/// Values of the options of all wrappers.
#[derive(Default)]
struct Wrap {
    directory: Option<PathBuf>,
    size: Option<u64>,
    rate: Option<u64>,
    requests: Option<u32>,
    faults: Faults,
}

impl Wrap {
    fn with(mut self, url: &str, scheme: &str, key: &str, value: &str) -> Result<Self> {
        let bad = |want: &str| invalid(format!("{url}: `{key}={value}` wants {want}"));
        let share = || {
            let parsed = value.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
            parsed.ok_or_else(|| bad("a share of requests from 0 to 1"))
        };
        match (scheme, key) {
            ("disk", "directory") => self.directory = Some(value.into()),
            ("disk", "size") => {
                self.size = Some(parse_size(value).ok_or_else(|| bad("a size such as 10GiB"))?);
            }
            ("throttle", "rate") => {
                self.rate = Some(parse_rate(value).ok_or_else(|| bad("a rate such as 90MB/s"))?);
            }
            ("limit", "requests") => {
                let requests = value.parse().ok().filter(|&requests: &u32| requests > 0);
                self.requests = Some(requests.ok_or_else(|| bad("a number, at least 1"))?);
            }
            ("fault", "errors") => self.faults.errors = vec![(ErrorKind::Unavailable, share()?)],
            ("fault", "short") => self.faults.short = share()?,
            ("fault", "truncated") => self.faults.truncated = share()?,
            ("fault", "stalled") => self.faults.stalled = share()?,
            ("fault", "stall") => {
                self.faults.stall = parse_duration(value).ok_or_else(|| bad("a time such as 2s"))?;
            }
            ("fault", "write_errors") => self.faults.writes.errors.push((ErrorKind::Io, share()?)),
            ("fault", "no_space") => self.faults.writes.errors.push((ErrorKind::NoSpace, share()?)),
            ("fault", "write_short") => self.faults.writes.short = share()?,
            ("fault", "write_stalled") => self.faults.writes.stalled = share()?,
            ("fault", "sync_errors") => self.faults.writes.sync = vec![(ErrorKind::Io, share()?)],
            ("fault", "finish_errors") => {
                self.faults.writes.finish = vec![(ErrorKind::Unavailable, share()?)]
            }
            ("fault", "seed") => self.faults.seed = value.parse().map_err(|_| bad("a number"))?,
            _ => {
                let known = match scheme {
                    "disk" => "directory, size",
                    "throttle" => "rate",
                    "limit" => "requests",
                    _ => {
                        "errors, finish_errors, no_space, seed, short, stall, stalled, sync_errors, truncated, \
                         write_errors, write_short, write_stalled"
                    }
                };
                return Err(invalid(format!("{url}: {scheme} has no option `{key}`; known: {known}")));
            }
        }
        let (reads, writes) = (&self.faults, &self.faults.writes);
        let all = |errors: &[(ErrorKind, f64)]| errors.iter().map(|error| error.1).sum::<f64>();
        if all(&reads.errors) + reads.short + reads.truncated + reads.stalled > 1.0
            || all(&writes.errors) + writes.short + writes.stalled > 1.0
        {
            return Err(bad("shares that add up to at most 1"));
        }
        Ok(self)
    }
}
