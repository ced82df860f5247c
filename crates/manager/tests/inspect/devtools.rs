//! A small client of Chromium's DevTools protocol: JSON messages that end with a zero byte, over two pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
/// It sends nothing to anybody but the page's server, and keeps nothing.
const FLAGS: [&str; 13] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--force-color-profile=srgb",
    "--window-size=1280,900",
];
/// Chromium reads from descriptor 3 and writes to 4.
const WITH_PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"#;

/// A headless Chromium with an empty profile, and one page.
pub(crate) struct Browser {
    process: Child,
    requests: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    session: String,
    /// What the page reported as an error or a warning.
    problems: Vec<String>,
    /// The headers of the last document.
    document: Value,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program: `$CHROMIUM`, or what the `PATH` has.
fn program() -> PathBuf {
    if let Some(program) = std::env::var_os("CHROMIUM") {
        return program.into();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&folders).collect();
    let candidates = PROGRAMS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    candidates.into_iter().find(|path| path.exists()).expect("Chromium is missing: apt-get install chromium")
}

impl Browser {
    pub(crate) fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut process = Command::new("sh")
            .args(["-c", WITH_PIPES])
            .arg(program())
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (requests, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let messages = BufReader::new(answers).split(0).map_while(Result::ok);
            let mut messages = messages.filter_map(|message| serde_json::from_slice::<Value>(&message).ok());
            let _ = messages.try_for_each(|message| sender.send(message));
        });
        let mut browser = Self {
            process,
            requests,
            messages,
            last_id: 0,
            session: String::new(),
            problems: Vec::new(),
            document: Value::Null,
            _profile: profile,
        };
        browser.open_page(&json!({}));
        browser
    }

    /// Goes on with a new page that shares no cookies with the earlier ones.
    pub(crate) fn open_private_page(&mut self) {
        self.session.clear();
        let context = self.call("Target.createBrowserContext", &json!({}));
        self.open_page(&json!({"browserContextId": context["browserContextId"]}));
    }

    fn open_page(&mut self, context: &Value) {
        let mut target = json!({"url": "about:blank"});
        target.as_object_mut().unwrap().extend(context.as_object().unwrap().clone());
        let target = self.call("Target.createTarget", &target);
        let attached =
            self.call("Target.attachToTarget", &json!({"targetId": target["targetId"], "flatten": true}));
        attached["sessionId"].as_str().unwrap().clone_into(&mut self.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), &json!({}));
        }
        // The manager of a playground has generated its certificate.
        self.call("Security.setIgnoreCertificateErrors", &json!({"ignore": true}));
    }

    /// Calls a method of the protocol.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let mut request = json!({"id": self.last_id, "method": method, "params": params});
        if !self.session.is_empty() {
            request["sessionId"] = self.session.as_str().into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|error| panic!("no answer to {method}: {error}"));
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method} {params}: {}", message["error"]);
                return message["result"].clone();
            }
            self.observe(&message);
        }
    }

    fn observe(&mut self, event: &Value) {
        if event["sessionId"] != self.session.as_str() {
            return;
        }
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.problems.push(params["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" if params["type"] != "log" => self.problems.push(params.to_string()),
            "Log.entryAdded" if matches!(params["entry"]["level"].as_str(), Some("error" | "warning")) => {
                self.problems.push(params["entry"].to_string());
            }
            "Network.responseReceived" if params["type"] == "Document" => {
                self.document = params["response"]["headers"].clone();
            }
            _ => {}
        }
    }

    pub(crate) fn navigate(&mut self, url: &str) {
        let answer = self.call("Page.navigate", &json!({"url": url}));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
        self.wait_for("document.readyState === 'complete'");
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", &params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let began = Instant::now();
        // A page that is just being replaced cannot be asked.
        let guarded =
            format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()");
        while self.evaluate(&guarded) != true {
            if began.elapsed() > PATIENCE {
                let shown = self.evaluate("document.body.innerText");
                panic!("{expression} does not become true: {shown}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until an element shows a text.
    pub(crate) fn wait_for_text(&mut self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.wait_for(&format!("document.querySelector({selector}).innerText.includes({text})"));
    }

    /// Presses a key, as a keyboard does.
    pub(crate) fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            "Tab" | "Escape" => "",
            key => key,
        };
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "Escape" => 27,
            _ => 0,
        };
        let event = json!({"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", &event);
        self.call(
            "Input.dispatchKeyEvent",
            &json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code}),
        );
    }

    /// Types into the element that has the focus, instead of what is selected in it.
    pub(crate) fn enter(&mut self, text: &str) {
        self.call("Input.insertText", &json!({"text": text}));
        self.press("Enter");
    }

    pub(crate) fn set_color_scheme(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    pub(crate) fn set_size(&mut self, width: u32, height: u32, is_phone: bool) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// The console errors and warnings, exceptions and refused loads since the last call.
    pub(crate) fn take_problems(&mut self) -> Vec<String> {
        // What the page has reported comes before this answer.
        self.evaluate("1");
        std::mem::take(&mut self.problems)
    }

    /// A header of the document, by its name in lower case.
    pub(crate) fn document_header(&self, name: &str) -> String {
        let headers = self.document.as_object().unwrap();
        let found = headers.iter().find(|(there, _)| there.to_lowercase() == name);
        found.and_then(|(_, value)| value.as_str()).unwrap_or_default().to_owned()
    }

    pub(crate) fn screenshot(&mut self, path: &Path) {
        let picture = self.call("Page.captureScreenshot", &json!({"format": "png"}));
        let picture = base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().unwrap());
        std::fs::write(path, picture.unwrap()).unwrap();
    }
}
