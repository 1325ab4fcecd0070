//! A headless Chromium over a pipe (the DevTools protocol): pages as users see them.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// Longest wait for a response; a slower page does not open for users either.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names of its executable.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    stdin: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// Events since the last check.
    events: Vec<Value>,
}

impl Browser {
    /// Starts a browser, or says why there is none.
    pub(crate) fn start(directory: &std::path::Path) -> Result<Self, String> {
        let name = NAMES
            .into_iter()
            .find(|name| {
                Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
            })
            .ok_or_else(|| format!("none of {} is installed (tools/setup.sh browser)", NAMES.join(", ")))?;
        // The browser uses descriptors 3 and 4; a shell redirects the child's pipes there.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>&2", name])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", directory.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let stdin = child.stdin.take().expect("a pipe");
        let messages = messages(child.stdout.take().expect("a pipe"));
        let mut browser = Self { child, stdin, messages, session: None, last: 0, events: Vec::new() };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach)["sessionId"].as_str().map(str::to_owned);
        browser.session = session;
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Ok(browser)
    }

    /// Runs a command of the protocol; returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.stdin.write_all(&bytes).expect("the browser listens");
        loop {
            let answer = self.message(method);
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Opens a page with this width in pixels and waits until it is loaded and its scripts have
    /// run.
    pub(crate) fn open(&mut self, path: &std::path::Path, width: u32, scheme: &str) {
        let mobile = width < 500;
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.media("", scheme);
        self.events.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}", path.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.message("the page's load");
            self.events.push(event);
        }
    }

    /// Emulates the media `screen` or `print` with a `light` or `dark` color scheme.
    pub(crate) fn media(&mut self, media: &str, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": media, "features": features }));
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let call = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", call);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Errors of the page since it was opened: exceptions and console errors.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let wrong = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Log.entryAdded") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"] != "log",
            _ => false,
        };
        self.events.iter().filter(wrong).map(|event| event["params"].to_string()).collect()
    }

    /// URLs requested by the page since it was opened.
    pub(crate) fn requests(&self) -> Vec<String> {
        let sent = |event: &&Value| event["method"] == "Network.requestWillBeSent";
        let address = |event: &Value| event["params"]["request"]["url"].to_string();
        self.events.iter().filter(sent).map(address).collect()
    }

    fn message(&self, waiting_for: &str) -> Value {
        self.messages
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|error| panic!("no answer from the browser to {waiting_for}: {error}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Closing its pipe ends it; otherwise the kill does. It must not outlive the test.
        let _it_may_have_ended = self.child.kill();
        let _it_has_ended = self.child.wait();
    }
}

/// Messages of the browser: JSON, each terminated by a NUL byte.
fn messages(pipe: impl Read + Send + 'static) -> Receiver<Value> {
    let (sender, receiver) = sync_channel(1024);
    thread::spawn(move || {
        for message in BufReader::new(pipe).split(0) {
            let Ok(message) = message else { return };
            let value = serde_json::from_slice(&message).expect("the browser writes JSON");
            if sender.send(value).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Decodes base64; the protocol sends files that way.
pub(crate) fn bytes_of(base64: &str) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut word, mut bits) = (Vec::new(), 0_u32, 0);
    for letter in base64.bytes() {
        let Some(sextet) = LETTERS.iter().position(|known| *known == letter) else { break };
        (word, bits) = ((word << 6) | sextet as u32, bits + 6);
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
            word &= (1 << bits) - 1;
        }
    }
    bytes
}
