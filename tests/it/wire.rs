//! A server that speaks S3 for a store in memory, as far as gyre asks, and does something wrong at one of the requests.

use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    UpdateVersion,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use url::Url;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    /// The server is busy, and says so.
    Busy,
    /// Nothing is done or answered.
    Silence,
    /// Half of the answer comes.
    CutOff,
    /// It is done, and the connection closed without an answer.
    Lost,
}

/// The server is silent for so long; its clients wait for [`PATIENCE`].
const SILENCE: Duration = Duration::from_millis(1500);
pub const PATIENCE: &str = "500ms";

/// The bucket `lake`.
pub struct S3 {
    pub store: InMemory,
    pub requests: Arc<AtomicUsize>,
    port: u16,
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

impl S3 {
    /// Serves a store; `trouble` comes at the request of that number.
    pub fn start(store: InMemory, trouble: Option<(usize, Trouble)>) -> S3 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let requests = Arc::<AtomicUsize>::default();
        let (served, count) = (store.clone(), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (store, count) = (served.clone(), Arc::clone(&count));
                // A client that goes away is its own affair.
                std::thread::spawn(move || serve(stream?, &store, &count, trouble));
            }
        });
        S3 {
            store,
            requests,
            port,
        }
    }

    pub fn options(&self) -> BTreeMap<String, String> {
        let url = format!("http://127.0.0.1:{}", self.port);
        let options = [
            ("aws_endpoint_url", url.as_str()),
            ("aws_allow_http", "true"),
            ("aws_region", "eu-central-1"),
            ("aws_access_key_id", "AKIAGYRE"),
            ("aws_secret_access_key", "secret-of-a-test"),
            ("timeout", PATIENCE),
        ];
        let options = options.map(|(k, v)| (k.to_string(), v.to_string()));
        options.into()
    }
}

fn serve(
    mut stream: TcpStream,
    store: &InMemory,
    count: &AtomicUsize,
    trouble: Option<(usize, Trouble)>,
) -> std::io::Result<()> {
    let request = read(&mut BufReader::new(stream.try_clone()?))?;
    let number = count.fetch_add(1, Ordering::SeqCst);
    let trouble = trouble
        .filter(|(at, _)| *at == number)
        .map(|(_, what)| what);
    let answer = match trouble {
        Some(Trouble::Busy) => answer(503, "", "<Error><Code>SlowDown</Code></Error>"),
        Some(Trouble::Silence) => {
            std::thread::sleep(SILENCE);
            return Ok(());
        }
        _ => handle(&request, store)
            .now_or_never()
            .expect("memory does not wait"),
    };
    if trouble == Some(Trouble::Lost) {
        return Ok(());
    }
    let Answer {
        status,
        headers,
        mut body,
    } = answer;
    let is_head = request.method == "HEAD";
    let length = match is_head {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let head = format!("HTTP/1.1 {status} x\r\n{length}{headers}Connection: close\r\n\r\n");
    if is_head {
        body.clear();
    }
    if trouble == Some(Trouble::CutOff) {
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

async fn handle(request: &Request, store: &InMemory) -> Answer {
    let done = match request.method.as_str() {
        "GET" if request.url.query().is_some() => Ok(list(request, store).await),
        "GET" | "HEAD" => get(request, store).await,
        "PUT" => put(request, store).await,
        "POST" => Ok(delete(request, store).await),
        other => panic!("{other} is not asked for"),
    };
    done.unwrap_or_else(|e| match e {
        Error::NotFound { .. } => answer(404, "", "<Error><Code>NoSuchKey</Code></Error>"),
        Error::AlreadyExists { .. } | Error::Precondition { .. } => answer(412, "", "<Error/>"),
        e => answer(400, "", format!("<Error>{e}</Error>")),
    })
}

fn key(path: &str) -> Path {
    let key = path.trim_start_matches('/').strip_prefix("lake/");
    Path::from_url_path(key.expect("a key of the bucket")).expect("a path")
}

async fn get(request: &Request, store: &InMemory) -> object_store::Result<Answer> {
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
    let got = store.get_opts(&key(request.url.path()), options).await?;
    let (meta, found) = (got.meta.clone(), got.range.clone());
    let bytes = got.bytes().await?;
    let tag = meta.e_tag.expect("a tag");
    let date = meta.last_modified.to_rfc2822().replace("+0000", "GMT");
    let mut headers = format!("ETag: {tag}\r\nLast-Modified: {date}\r\n");
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

async fn put(request: &Request, store: &InMemory) -> object_store::Result<Answer> {
    let to = key(request.url.path());
    if let Some(from) = request.headers.get("x-amz-copy-source") {
        store.copy(&key(from), &to).await?;
        let xml = "<CopyObjectResult><ETag>0</ETag></CopyObjectResult>";
        return Ok(answer(200, "", xml));
    }
    let mode = match request.headers.get("if-match") {
        Some(tag) => PutMode::Update(UpdateVersion {
            e_tag: Some(tag.clone()),
            version: None,
        }),
        None if request.headers.contains_key("if-none-match") => PutMode::Create,
        None => PutMode::Overwrite,
    };
    let put = store.put_opts(&to, request.body.clone().into(), PutOptions::from(mode));
    let tag = put.await?.e_tag.expect("a tag");
    Ok(answer(200, &format!("ETag: {tag}\r\n"), ""))
}

async fn delete(request: &Request, store: &InMemory) -> Answer {
    let body = String::from_utf8(request.body.clone()).expect("XML");
    let mut done = String::new();
    for rest in body.split("<Key>").skip(1) {
        let name = rest.split("</Key>").next().expect("an end");
        store.delete(&Path::from(name)).await.ok();
        done += &format!("<Deleted><Key>{name}</Key></Deleted>");
    }
    answer(200, "", format!("<DeleteResult>{done}</DeleteResult>"))
}

async fn list(request: &Request, store: &InMemory) -> Answer {
    let query: BTreeMap<_, _> = request.url.query_pairs().collect();
    let prefix = Path::from(query.get("prefix").map_or("", |prefix| prefix.as_ref()));
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
        let found = store.list(Some(&prefix));
        objects.extend(
            found
                .map(|meta| meta.expect("memory lists"))
                .collect::<Vec<_>>()
                .await,
        );
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
    answer(
        200,
        "",
        format!("<ListBucketResult>{xml}</ListBucketResult>"),
    )
}
