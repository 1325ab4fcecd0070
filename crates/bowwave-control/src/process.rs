//! All control channels of a process: the two libraries of `bowwave run` serve one each.

use serde_json::{Value, json};

use crate::client::{Peer, peers};
use crate::protocol::{Request, Setting};
use crate::{Error, Result};

/// A process with caches, and its control channels.
#[derive(Clone, Debug)]
pub struct Process {
    id: u32,
    user: u32,
    peers: Vec<Peer>,
}

impl Process {
    /// The programs to which this user may send requests: the user's own, and for root those of all
    /// users. Mounts are not included.
    pub fn programs() -> Vec<Self> {
        let mut programs: Vec<Self> = Vec::new();
        for peer in peers().into_iter().filter(|peer| !peer.is_mount()) {
            match programs.iter_mut().find(|one| one.id == peer.process() && one.user == peer.user()) {
                Some(one) => one.peers.push(peer),
                None => programs.push(Self { id: peer.process(), user: peer.user(), peers: vec![peer] }),
            }
        }
        programs.sort_by_key(|one| (one.user, one.id));
        programs
    }

    /// The process with this id: a program, or the process of a mount.
    ///
    /// # Errors
    /// [`Error::NoProcess`].
    pub fn find(id: u32) -> Result<Self> {
        let mut peers: Vec<_> = peers().into_iter().filter(|peer| peer.process() == id).collect();
        let user = peers.first().map(Peer::user).ok_or(Error::NoProcess(id))?;
        peers.retain(|peer| peer.user() == user);
        Ok(Self { id, user, peers })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its user.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Sends a request to all caches of the process, and joins their responses. [`Request::Get`]
    /// and [`Request::Set`] are sent only to caches that have the setting.
    ///
    /// # Errors
    /// As [`Peer::ask`], of one of the caches; [`Error::Refused`] if none has the setting.
    pub fn ask(&self, request: &Request) -> Result<Value> {
        // Skips a socket that an ended process with the same id has left.
        let live = |peer: &Peer, request: &Request| match peer.ask(request) {
            Err(Error::NoProcess(_)) => None,
            answer => Some(answer),
        };
        let key = match request {
            Request::Get { key } | Request::Set { key, .. } => key,
            _ => {
                let answers = self.peers.iter().filter_map(|peer| live(peer, request));
                return answers.reduce(|all, next| Ok(join(all?, next?))).ok_or(Error::NoProcess(self.id))?;
            }
        };
        let (mut known, mut found) = (Vec::new(), Vec::new());
        for peer in &self.peers {
            let Some(list) = live(peer, &Request::List) else { continue };
            let keys: Vec<Setting> = serde_json::from_value(list?)
                .map_err(|error| Error::Refused(format!("the process is of another version: {error}")))?;
            if keys.iter().any(|setting| setting.key == *key) {
                found.push(peer);
            }
            known.extend(keys.into_iter().map(|setting| setting.key).filter(|key| !key.is_empty()));
        }
        if known.is_empty() {
            return Err(Error::NoProcess(self.id));
        }
        let answers = found.into_iter().map(|peer| peer.ask(request));
        answers.reduce(|first, next| next.and(first)).unwrap_or_else(|| {
            Err(Error::Refused(format!("there is no setting '{key}'; there are {}", known.join(", "))))
        })
    }
}

/// Joins the responses of two caches: appends lists without duplicates, adds counters and memory.
fn join(first: Value, next: Value) -> Value {
    match (first, next) {
        (Value::Array(mut first), Value::Array(next)) => {
            first.extend(next.into_iter().filter(|one| !first.contains(one)).collect::<Vec<_>>());
            Value::Array(first)
        }
        (Value::Object(mut first), Value::Object(next)) => {
            for (key, value) in next {
                let known = first.remove(&key);
                let joined = match (known, key.as_str()) {
                    (Some(known), "counters" | "maps") => join(known, value),
                    (Some(known), key) if !SAME.contains(&key) => add(known, value),
                    (Some(known), _) => known,
                    (None, _) => value,
                };
                first.insert(key, joined);
            }
            Value::Object(first)
        }
        (first, _) => first,
    }
}

fn add(first: Value, next: Value) -> Value {
    match (first.as_u64(), next.as_u64()) {
        (Some(first), Some(next)) => json!(first.saturating_add(next)),
        _ => first,
    }
}

/// Numbers that are properties of the process, not sums.
const SAME: [&str; 3] = ["pid", "age_seconds", "page_bytes"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_of_one_process_are_added_up_but_for_its_own_properties() {
        let files = json!({
            "pid": 7, "program": "sort", "memory_used": 3, "maps": [{"url": "a"}],
            "counters": {"page_bytes": 4096, "hits": 2},
        });
        let memory = json!({
            "pid": 7, "program": "sort", "memory_used": 4, "swap_policy": "vma", "maps": [],
            "counters": {"page_bytes": 4096, "hits": 3, "swap_in": 5},
        });
        let both = json!({
            "pid": 7, "program": "sort", "memory_used": 7, "swap_policy": "vma", "maps": [{"url": "a"}],
            "counters": {"page_bytes": 4096, "hits": 5, "swap_in": 5},
        });
        assert_eq!(join(files, memory), both);
        assert_eq!(join(json!([1]), json!([2, 1])), json!([1, 2]));
    }
}
