//! A server for a store in memory. It speaks the part of S3 or of Google's XML API that gyre uses,
//! and it can fail at one request.
//!
//! The two protocols differ little. Google's, according to its documentation of the XML API:
//! - each object has a generation, and puts and copies can depend on it (0: no object exists)
//! - conditions on tags apply to reads only
//! - objects are deleted one by one
//! - an object is written at most once per second

use futures::{FutureExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    UpdateVersion,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use url::Url;

/// The protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Protocol {
    S3,
    Google,
}

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ServerFault {
    /// The server answers that it is busy.
    Busy,
    /// The server neither executes nor answers the request.
    Silence,
    /// The server sends half of the answer.
    CutOff,
    /// The server executes the request and closes the connection without an answer.
    Lost,
}

/// How long the server is silent. Its clients wait for [`PATIENCE`].
const SILENCE: Duration = Duration::from_millis(1500);
pub const PATIENCE: &str = "500ms";

/// The shortest time between two writes of one object in Google's store.
const PAUSE: Duration = Duration::from_secs(1);

/// The generation of the first object. It is large, so that a tag cannot pass for a generation.
const FIRST: u64 = 1_700_000_000_000_000;

/// A server with one bucket, `lake`.
pub struct Server {
    bucket: Arc<Bucket>,
    port: u16,
}

pub struct Bucket {
    pub store: InMemory,
    pub requests: AtomicUsize,
    protocol: Protocol,
    fault: Option<(usize, ServerFault)>,
    /// Parts of incomplete objects, by upload and part number.
    uploads: Mutex<BTreeMap<String, BTreeMap<usize, Vec<u8>>>>,
    written: Mutex<BTreeMap<Path, Instant>>,
    /// How many more clients must put a pointer before any of these puts is executed.
    awaited: AtomicUsize,
}

impl std::ops::Deref for Server {
    type Target = Bucket;

    fn deref(&self) -> &Bucket {
        &self.bucket
    }
}

struct Request {
    method: String,
    url: Url,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

fn answer(status: u16, headers: &str, body: impl Into<Vec<u8>>) -> Answer {
    Answer {
        status,
        headers: headers.to_string(),
        body: body.into(),
    }
}

impl Server {
    /// Starts a server for a store. A fault occurs at the request with the given number.
    pub fn start(
        store: InMemory,
        protocol: Protocol,
        fault: Option<(usize, ServerFault)>,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let bucket = Arc::new(Bucket {
            store,
            requests: AtomicUsize::new(0),
            protocol,
            fault,
            uploads: Mutex::default(),
            written: Mutex::default(),
            awaited: AtomicUsize::new(0),
        });
        let served = Arc::clone(&bucket);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let bucket = Arc::clone(&served);
                // A client may close its connection.
                std::thread::spawn(move || serve(stream?, &bucket));
            }
        });
        Server { bucket, port }
    }

    /// The URL scheme of the server.
    pub fn scheme(&self) -> &'static str {
        match self.protocol {
            Protocol::S3 => "s3",
            Protocol::Google => "gs",
        }
    }

    pub fn options(&self) -> BTreeMap<String, String> {
        let url = format!("http://127.0.0.1:{}", self.port);
        let s3 = [
            ("aws_endpoint_url", url.as_str()),
            ("aws_allow_http", "true"),
            ("aws_region", "eu-central-1"),
            ("aws_access_key_id", "AKIAGYRE"),
            ("aws_secret_access_key", "secret-of-a-test"),
        ];
        let google = [
            ("google_base_url", url.as_str()),
            ("google_allow_http", "true"),
            ("google_service_account_key", GOOGLE_KEY),
        ];
        let options = match self.protocol {
            Protocol::S3 => &s3[..],
            Protocol::Google => &google,
        };
        let options = options.iter();
        options
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect()
    }

    /// Holds the next puts of a pointer until `many` clients have sent one.
    pub fn hold_pointer_puts(&self, many: usize) {
        self.awaited.store(many, Ordering::SeqCst);
    }

    /// The number of uploads that have parts and are not complete.
    pub fn uploads(&self) -> usize {
        self.uploads.lock().expect("uploads").len()
    }
}

/// A key without a signature, which emulators accept.
const GOOGLE_KEY: &str = r#"{"private_key": "none", "private_key_id": "none", "client_email": "gyre@example.org", "disable_oauth": true}"#;

impl Bucket {
    /// Holds a put of a pointer until all awaited clients have sent theirs.
    fn wait_for_other_puts(&self, request: &Request) {
        let is_pointer = request.url.path().ends_with("current%2Ejson")
            || request.url.path().ends_with("current.json");
        if request.method != "PUT" || !is_pointer {
            return;
        }
        let one_less = |n: usize| n.checked_sub(1);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        if self.awaited.fetch_update(set, get, one_less).is_ok() {
            let start = Instant::now();
            while self.awaited.load(Ordering::SeqCst) > 0 && start.elapsed().as_secs() < 20 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Whether the last write of an object was too recent for another one.
    fn is_too_soon(&self, to: &Path) -> bool {
        let written = self.written.lock().expect("times");
        let is_recent = written.get(to).is_some_and(|at| at.elapsed() < PAUSE);
        is_recent && self.protocol == Protocol::Google
    }

    fn note_write(&self, to: Path) {
        let mut written = self.written.lock().expect("times");
        written.insert(to, Instant::now());
    }

    /// The condition under which a request puts an object.
    fn mode(&self, request: &Request) -> PutMode {
        let update = |tag: String| {
            PutMode::Update(UpdateVersion {
                e_tag: Some(tag),
                version: None,
            })
        };
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        match self.protocol {
            Protocol::S3 => match header("if-match") {
                Some(tag) => update(tag.to_string()),
                None if header("if-none-match").is_some() => PutMode::Create,
                None => PutMode::Overwrite,
            },
            Protocol::Google => match header("x-goog-if-generation-match") {
                None => PutMode::Overwrite,
                Some("0") => PutMode::Create,
                Some(generation) => {
                    let generation: u64 = generation.parse().expect("a generation");
                    update(generation.wrapping_sub(FIRST).to_string())
                }
            },
        }
    }

    /// The headers that identify an object.
    fn identity_headers(&self, tag: &str) -> String {
        let generation = || FIRST + tag.parse::<u64>().expect("a number");
        match self.protocol {
            Protocol::S3 => format!("ETag: {tag}\r\n"),
            Protocol::Google => format!("ETag: {tag}\r\nx-goog-generation: {}\r\n", generation()),
        }
    }
}

fn serve(mut stream: TcpStream, bucket: &Bucket) -> std::io::Result<()> {
    let request = read(&mut BufReader::new(stream.try_clone()?))?;
    let number = bucket.requests.fetch_add(1, Ordering::SeqCst);
    let fault = bucket.fault.filter(|(at, _)| *at == number);
    let fault = fault.map(|(_, what)| what);
    bucket.wait_for_other_puts(&request);
    let answer = match fault {
        Some(ServerFault::Busy) => answer(503, "", "<Error><Code>SlowDown</Code></Error>"),
        Some(ServerFault::Silence) => {
            std::thread::sleep(SILENCE);
            return Ok(());
        }
        _ => handle(&request, bucket)
            .now_or_never()
            .expect("memory does not wait"),
    };
    if fault == Some(ServerFault::Lost) {
        return Ok(());
    }
    let Answer {
        status,
        headers,
        mut body,
    } = answer;
    let is_head = request.method == "HEAD";
    let length = if is_head {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("HTTP/1.1 {status} x\r\n{length}{headers}Connection: close\r\n\r\n");
    if is_head {
        body.clear();
    }
    if fault == Some(ServerFault::CutOff) {
        body.truncate(body.len() / 2);
    }
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}

fn read(stream: &mut impl BufRead) -> std::io::Result<Request> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut words = line.split(' ').map(str::to_string);
    let (method, target) = (words.next(), words.next());
    let (method, target) = (method.unwrap_or_default(), target.unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_string());
    }
    let length = headers.get("content-length");
    let mut body = vec![0; length.map_or(0, |n| n.parse().expect("a number"))];
    stream.read_exact(&mut body)?;
    let url = Url::parse("http://host").and_then(|root| root.join(&target));
    Ok(Request {
        method,
        url: url.expect("a target"),
        headers,
        body,
    })
}

async fn handle(request: &Request, bucket: &Bucket) -> Answer {
    let store = &bucket.store;
    let query: BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
    let upload = query.get("uploadId");
    let done = match (request.method.as_str(), upload) {
        ("GET", _) if !query.is_empty() => Ok(list(request, store).await),
        ("GET" | "HEAD", _) => get(request, bucket).await,
        ("PUT", Some(upload)) => {
            let number = query["partNumber"].parse().expect("a number");
            let mut uploads = bucket.uploads.lock().expect("uploads");
            Ok(match uploads.get_mut(upload) {
                Some(parts) => {
                    parts.insert(number, request.body.clone());
                    answer(200, &format!("ETag: part-{number}\r\n"), "")
                }
                None => no_upload(),
            })
        }
        ("PUT", None) => put(request, bucket).await,
        ("POST", Some(upload)) => complete(request, bucket, upload).await,
        ("POST", None) if query.contains_key("uploads") => {
            let mut uploads = bucket.uploads.lock().expect("uploads");
            let id = format!("upload-{}", bucket.requests.load(Ordering::SeqCst));
            uploads.insert(id.clone(), BTreeMap::new());
            let id = format!("<UploadId>{id}</UploadId>");
            let xml =
                format!("<InitiateMultipartUploadResult>{id}</InitiateMultipartUploadResult>");
            Ok(answer(200, "", xml))
        }
        ("POST", None) => Ok(delete(request, store).await),
        ("DELETE", Some(upload)) => {
            bucket.uploads.lock().expect("uploads").remove(upload);
            Ok(answer(204, "", ""))
        }
        ("DELETE", None) => {
            let path = key(request.url.path());
            let deleted = async {
                store.head(&path).await?;
                store.delete(&path).await
            };
            deleted.await.map(|()| answer(204, "", ""))
        }
        (other, _) => panic!("{other} is not asked for"),
    };
    done.unwrap_or_else(|e| match e {
        Error::NotFound { .. } => answer(404, "", "<Error><Code>NoSuchKey</Code></Error>"),
        Error::AlreadyExists { .. } | Error::Precondition { .. } => answer(412, "", "<Error/>"),
        e => answer(400, "", format!("<Error>{e}</Error>")),
    })
}

fn no_upload() -> Answer {
    answer(404, "", "<Error><Code>NoSuchUpload</Code></Error>")
}

fn key(path: &str) -> Path {
    let key = path.trim_start_matches('/').strip_prefix("lake/");
    Path::from_url_path(key.expect("a key of the bucket")).expect("a path")
}

async fn get(request: &Request, bucket: &Bucket) -> object_store::Result<Answer> {
    let range = request.headers.get("range").map(|range| {
        let range = range.strip_prefix("bytes=").expect("bytes");
        let (first, last) = range.split_once('-').expect("a range");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        number(first)..number(last) + 1
    });
    let options = GetOptions {
        if_match: request.headers.get("if-match").cloned(),
        range: range.clone().map(GetRange::Bounded),
        ..GetOptions::default()
    };
    let path = key(request.url.path());
    let got = bucket.store.get_opts(&path, options).await?;
    let (meta, found) = (got.meta.clone(), got.range.clone());
    let bytes = got.bytes().await?;
    let tag = meta.e_tag.expect("a tag");
    let date = meta.last_modified.to_rfc2822().replace("+0000", "GMT");
    let mut headers = bucket.identity_headers(&tag) + &format!("Last-Modified: {date}\r\n");
    if request.method == "HEAD" {
        headers += &format!("Content-Length: {}\r\n", meta.size);
    }
    let status = match range {
        Some(_) => {
            let (first, last) = (found.start, found.end - 1);
            headers += &format!("Content-Range: bytes {first}-{last}/{}\r\n", meta.size);
            206
        }
        None => 200,
    };
    Ok(answer(status, &headers, bytes))
}

async fn put(request: &Request, bucket: &Bucket) -> object_store::Result<Answer> {
    let (to, store) = (key(request.url.path()), &bucket.store);
    if bucket.is_too_soon(&to) {
        return Ok(answer(429, "", "<Error><Code>SlowDown</Code></Error>"));
    }
    let mode = bucket.mode(request);
    let from = ["x-amz-copy-source", "x-goog-copy-source"].iter();
    if let Some(from) = from.filter_map(|name| request.headers.get(*name)).next() {
        match mode {
            PutMode::Overwrite => store.copy(&key(from), &to).await?,
            _ => store.copy_if_not_exists(&key(from), &to).await?,
        }
        bucket.note_write(to);
        let xml = "<CopyObjectResult><ETag>0</ETag></CopyObjectResult>";
        return Ok(answer(200, "", xml));
    }
    let put = store.put_opts(&to, request.body.clone().into(), PutOptions::from(mode));
    let tag = put.await?.e_tag.expect("a tag");
    bucket.note_write(to);
    Ok(answer(200, &bucket.identity_headers(&tag), ""))
}

/// Joins the parts of an upload.
async fn complete(
    request: &Request,
    bucket: &Bucket,
    upload: &str,
) -> object_store::Result<Answer> {
    let parts = bucket.uploads.lock().expect("uploads").remove(upload);
    let Some(parts) = parts else {
        return Ok(no_upload());
    };
    let whole: Vec<u8> = parts.into_values().flatten().collect();
    let to = key(request.url.path());
    let put = bucket.store.put(&to, whole.into()).await?;
    let tag = put.e_tag.expect("a tag");
    let xml = format!("<ETag>{tag}</ETag>");
    let xml = format!("<CompleteMultipartUploadResult>{xml}</CompleteMultipartUploadResult>");
    Ok(answer(200, &bucket.identity_headers(&tag), xml))
}

async fn delete(request: &Request, store: &InMemory) -> Answer {
    let body = String::from_utf8(request.body.clone()).expect("XML");
    let mut done = String::new();
    for rest in body.split("<Key>").skip(1) {
        let name = rest.split("</Key>").next().expect("an end");
        let path = Path::parse(name).expect("a path");
        store.delete(&path).await.ok();
        done += &format!("<Deleted><Key>{name}</Key></Deleted>");
    }
    answer(200, "", format!("<DeleteResult>{done}</DeleteResult>"))
}

async fn list(request: &Request, store: &InMemory) -> Answer {
    let query: BTreeMap<_, _> = request.url.query_pairs().collect();
    let prefix = query.get("prefix").map_or("", |prefix| prefix.as_ref());
    let prefix = Path::parse(prefix).expect("a path");
    let mut xml = String::new();
    let mut objects: Vec<ObjectMeta> = Vec::new();
    if query.contains_key("delimiter") {
        let found = store.list_with_delimiter(Some(&prefix)).await;
        let found = found.expect("memory lists");
        objects.extend(found.objects);
        for folder in found.common_prefixes {
            xml += &format!("<CommonPrefixes><Prefix>{folder}/</Prefix></CommonPrefixes>");
        }
    } else {
        let found = store.list(Some(&prefix)).try_collect::<Vec<_>>().await;
        objects.extend(found.expect("memory lists"));
    }
    for meta in objects {
        xml += &format!(
            "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
            meta.location,
            meta.last_modified.to_rfc3339(),
            meta.e_tag.expect("a tag"),
            meta.size
        );
    }
    let xml = format!("<ListBucketResult>{xml}</ListBucketResult>");
    answer(200, "", xml)
}
