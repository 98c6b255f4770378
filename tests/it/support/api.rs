//! A client of the REST API that knows nothing of the program's own types.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A broker's API.
#[derive(Clone)]
pub struct Api {
    pub url: String,
    pub token: Option<String>,
    client: reqwest::Client,
}

/// An answer: status and JSON (null if there is none).
pub type Answer = (u16, Value);

impl Api {
    pub fn new(url: &str) -> Self {
        // The client is built without the platform's certificates: the tests speak to loopback only.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let roots = rustls::RootCertStore::empty();
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let client = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build().expect("a client");
        Self { url: url.to_owned(), token: None, client }
    }

    /// The client alone, for another server of this machine.
    pub fn into_client(self) -> reqwest::Client {
        self.client
    }

    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.header("Token", token),
            None => request,
        }
    }

    /// Sends, and reads the answer. A connection that fails is status 0.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let Ok(answer) = request.send().await else { return (0, Value::Null) };
        let status = answer.status();
        let kind = answer.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
        let text = answer.text().await.unwrap_or_default();
        if status.is_client_error() || status.is_server_error() {
            assert_eq!(kind, "application/problem+json", "every error has one shape: {status} {text}");
            let problem: Value = serde_json::from_str(&text).expect("a problem is JSON");
            assert_eq!(problem["status"], status.as_u16());
            for member in ["type", "title", "detail"] {
                assert!(problem[member].as_str().is_some_and(|t| !t.is_empty()), "{member} in {problem}");
            }
            return (status.as_u16(), problem);
        }
        assert_ne!(status, StatusCode::FOUND);
        (status.as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// What Prometheus reads.
    pub async fn metrics(&self) -> String {
        self.request(Method::GET, "/metrics").send().await.expect("an answer").text().await.expect("a text")
    }

    /// One sample of it, by its name with its labels.
    pub async fn metric(&self, sample: &str) -> f64 {
        let page = self.metrics().await;
        let value = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {sample} in {page}")).parse().expect("a number")
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::POST, path).header("content-type", "application/json").body(body.to_string())).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::PUT, path).header("content-type", "application/json").body(body.to_string())).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// Creates a block job of this class; its id.
    pub async fn job(&self, name: &str, class: &str, properties: &Value) -> String {
        let mut all = json!({ "FullClassName": class });
        for (key, value) in properties.as_object().expect("an object") {
            all[key] = value.clone();
        }
        let (status, job) = self.post("/api/v1/jobs", &json!({ "name": name, "jobType": "block", "properties": all })).await;
        assert_eq!(status, 201, "{job}");
        job["id"].as_str().expect("an id").to_owned()
    }

    /// Registers a worker by HTTP; its id.
    pub async fn worker(&self, class: &str) -> String {
        let (status, worker) = self.post("/api/v1/workers", &json!({ "classNames": [class] })).await;
        assert_eq!(status, 200, "{worker}");
        worker["workerId"].as_str().expect("an id").to_owned()
    }

    /// Fetches a worker's messages until one of this kind is among them: its body, or the status of a refusal. They are
    /// handed out as they come, so one fetch may bring less than what is on its way.
    pub async fn heard(&self, worker: &str, kind: &str) -> Result<Value, u16> {
        loop {
            let (status, messages) = self.get(&format!("/api/v1/workers/{worker}/messages?wait=10")).await;
            if status != 200 && status != 204 {
                return Err(status);
            }
            if let Some(message) = messages.as_array().into_iter().flatten().find(|message| message["t"] == kind) {
                return Ok(message["v"].clone());
            }
        }
    }

    /// Triggers a job; the run's identity.
    pub async fn trigger(&self, job: &str) -> String {
        let (status, run) = self.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({})).await;
        assert_eq!(status, 202, "{run}");
        run["identity"].as_str().expect("an identity").to_owned()
    }

    /// A run with a worker that is registered by HTTP: its identity and the worker.
    pub async fn run(&self, class: &str, properties: &Value) -> (String, String) {
        let worker = self.worker(class).await;
        let job = self.job(class, class, properties).await;
        (self.trigger(&job).await, worker)
    }

    /// A run as it is now.
    pub async fn state(&self, identity: &str) -> Value {
        let (status, run) = self.get(&format!("/api/v1/runs/{identity}")).await;
        assert_eq!(status, 200, "{run}");
        run
    }

    /// A node without a socket calls; the block that it gets, or null.
    pub async fn beat(&self, node: &str, more: &Value) -> Value {
        let mut call = json!({ "nodeId": node, "os": "linux", "cpuCount": 1, "group": "default", "totalMemory": 1000 });
        for (key, value) in more.as_object().expect("an object") {
            call[key] = value.clone();
        }
        let (status, block) = self.post("/node/heartbeat", &call).await;
        assert!(status == 200 || status == 204, "{status} {block}");
        block
    }

    /// A node without a socket reports a block: every request answered with this status.
    pub async fn report(&self, node: &str, block: &Value, status: u16) -> Answer {
        let results: Vec<Value> = block["requests"]
            .as_array()
            .expect("requests")
            .iter()
            .map(|r| json!({ "requestId": r["requestId"], "status": status, "tries": 1, "time": 3, "text": format!("page {}", r["url"]) }))
            .collect();
        let report = json!({ "blockId": block["blockId"], "identity": block["identity"], "nodeId": node,
            "epoch": block["epoch"], "attempt": block["attempt"], "results": results });
        self.post("/node/block", &report).await
    }
}

/// Requests for these pages.
pub fn requests(pages: impl IntoIterator<Item = usize>) -> Value {
    pages.into_iter().map(|n| json!({ "url": format!("http://example.test/{n}") })).collect()
}

/// A random id.
pub fn id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
