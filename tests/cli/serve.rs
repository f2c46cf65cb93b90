//! `meshwright serve`: the page of a folder, for this machine only.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::sweep::{folder, text};

/// A running server, ended with the test.
struct Running {
    process: Child,
    host: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_meshwright"))
            .args(["serve", "--port", "0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let host = address.trim().strip_prefix("http://").and_then(|host| host.strip_suffix('/'));
        Self { process, host: host.unwrap().to_owned() }
    }

    /// Status and body of the answer to the bytes of a request.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    fn get(&self, path: &str, host: &str) -> (String, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_folder_is_served_to_this_machine_alone() {
    let folder = folder("serve");
    std::fs::write(folder.join("secret.txt"), "no part of a page").unwrap();
    let page = folder.join("page");
    std::fs::create_dir(&page).unwrap();
    std::fs::write(page.join("index.html"), "<p>the page").unwrap();
    let server = Running::start(&["--folder", page.to_str().unwrap()]);
    assert!(server.host.starts_with("127.0.0.1:"), "{}", server.host);
    assert_eq!(server.get("/", &server.host), ("HTTP/1.1 200 OK".to_owned(), "<p>the page".to_owned()));
    for path in ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/secret.txt"] {
        assert_eq!(server.get(path, "localhost").0, "HTTP/1.1 404 Not Found", "{path}");
    }
    assert_eq!(server.get("/", "evil.example").0, "HTTP/1.1 403 Forbidden");
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(30_000));
    assert_eq!(server.ask(&long).0, "HTTP/1.1 404 Not Found");
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&server.host).unwrap()).collect();
    assert_eq!(server.get("/", "localhost").0, "HTTP/1.1 200 OK", "connections that say nothing hold nobody up");
    drop(silent);

    let port = server.host.rsplit_once(':').unwrap().1;
    let taken = ["serve", "--port", port, "--folder", page.to_str().unwrap()];
    let taken = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(taken).output().unwrap();
    assert_eq!(taken.status.code(), Some(2));
    assert!(text(&taken.stderr).contains(&format!("127.0.0.1:{port}: cannot listen there")), "{}", text(&taken.stderr));
}

#[test]
fn what_is_no_page_is_named() {
    let folder = folder("serve-empty");
    let serve = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).arg("serve").args(arguments).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, message) = serve(&["--folder", folder.to_str().unwrap()]);
    assert!(code == Some(2) && message.contains("has no index.html") && message.contains("web/build.sh"), "{message}");
    let missing = folder.join("missing");
    let (code, message) = serve(&["--folder", missing.to_str().unwrap()]);
    assert!(code == Some(2) && message.contains("missing: cannot be read"), "{message}");
    if !cfg!(feature = "page") {
        let (code, message) = serve(&[]);
        assert!(
            code == Some(2) && message.contains("no page in it") && message.contains("--folder web/dist"),
            "{message}"
        );
    }
}
