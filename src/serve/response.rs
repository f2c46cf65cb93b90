//! Response to one request.

use super::files::{Asset, PageFiles};

/// Headers of every response: the browser loads nothing from elsewhere, guesses no type, keeps no copy, shows the page in no
/// frame, and lets no other site read it.
const HEADERS: &str = "\
    Content-Security-Policy: default-src 'none'; script-src 'self' blob: data: 'wasm-unsafe-eval'; worker-src blob: data:; \
    style-src 'self' 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Referrer-Policy: no-referrer\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Cache-Control: no-cache\r\n\
    Connection: close\r\n";
/// Most headers of a request; browsers send about twenty.
const MOST_HEADERS: usize = 100;

/// Response to the head of a request, in bytes: one of the files, or a status with a sentence.
pub fn response(files: &PageFiles, head: &[u8]) -> Vec<u8> {
    match asset(files, head) {
        Ok(Asset { media, bytes }) => message("200 OK", media, bytes, ""),
        Err((status, why)) => {
            let allow = if status == METHOD { "Allow: GET\r\n" } else { "" };
            message(status, "text/plain; charset=utf-8", format!("{why}\n").as_bytes(), allow)
        }
    }
}

const METHOD: &str = "405 Method Not Allowed";

/// File that a request asks for; otherwise the status and the reason.
fn asset<'s>(files: &'s PageFiles, head: &[u8]) -> Result<&'s Asset, (&'static str, &'static str)> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let (Ok(httparse::Status::Complete(_)), Some(path)) = (request.parse(head), request.path) else {
        return Err(("400 Bad Request", "This is no request of HTTP/1.1."));
    };
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    if !matches!((hosts.next(), hosts.next()), (Some(host), None) if is_this_machine(host.value)) {
        return Err(("403 Forbidden", "Only requests to 127.0.0.1 and localhost are answered."));
    }
    if request.method != Some("GET") {
        return Err((METHOD, "Only GET is answered."));
    }
    let name = path.split(['?', '#']).next().and_then(|path| path.strip_prefix('/'));
    name.and_then(|name| files.file(name)).ok_or(("404 Not Found", "The page has no file of this name."))
}

/// Whether a `Host` names this machine; the port may be another, as through a tunnel.
fn is_this_machine(host: &[u8]) -> bool {
    let host = std::str::from_utf8(host).unwrap_or_default().trim();
    let (name, port) = host.split_once(':').unwrap_or((host, "80"));
    (name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")) && port.parse::<u16>().is_ok()
}

fn message(status: &str, media: &str, body: &[u8], more: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n{HEADERS}{more}\r\n");
    [head.as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> String {
        let files = [("index.html", "<p>"), ("page.js", "1"), ("notes.txt", "no part of a page")];
        let files = files.into_iter().map(|(name, text)| (name.to_owned(), text.as_bytes().into())).collect();
        let text = String::from_utf8(response(&files, request.as_bytes())).unwrap();
        assert!(text.contains("Content-Security-Policy: default-src 'none'"), "{text}");
        text.lines().next().unwrap().to_owned()
    }

    fn get(path: &str, host: &str) -> String {
        status(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    #[test]
    fn files_are_found_by_their_whole_name() {
        for path in ["/", "/index.html", "/page.js", "/?x=1", "/page.js?v=2"] {
            assert_eq!(get(path, "127.0.0.1:8080"), "HTTP/1.1 200 OK", "{path}");
        }
        for path in ["/../Cargo.toml", "/%2e%2e/Cargo.toml", "//page.js", "/notes.txt", "/x", "page.js", "/./page.js"] {
            assert_eq!(get(path, "localhost:8080"), "HTTP/1.1 404 Not Found", "{path}");
        }
    }

    #[test]
    fn only_this_machine_is_answered() {
        for host in ["127.0.0.1", "localhost", "LOCALHOST:9", "127.0.0.1:65535"] {
            assert_eq!(get("/", host), "HTTP/1.1 200 OK", "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost:x", "", "[::1]:80", "127.0.0.1:99999"] {
            assert_eq!(get("/", host), "HTTP/1.1 403 Forbidden", "{host}");
        }
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 403 Forbidden");
        let two = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
        assert_eq!(status(two), "HTTP/1.1 403 Forbidden");
    }

    #[test]
    fn other_methods_and_no_requests_are_refused() {
        for method in ["POST", "HEAD", "PUT", "OPTIONS", "get"] {
            let request = format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(status(&request), "HTTP/1.1 405 Method Not Allowed", "{method}");
        }
        for request in ["", "\r\n\r\n", "hello\r\n\r\n", "GET / HTTP/1.1\r\nHost: local", "GET  HTTP/1.1\r\n\r\n"] {
            assert_eq!(status(request), "HTTP/1.1 400 Bad Request", "{request:?}");
        }
    }
}
