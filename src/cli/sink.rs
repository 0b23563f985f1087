//! An output file for metrics or events. A regular file is replaced as a whole or appended to. A
//! device or a pipe is written directly and never replaced.

use crate::error::{Error, Result, printable};
use std::fs::{File, OpenOptions};
use std::io;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where metrics or events are written.
pub(crate) enum Sink {
    /// A regular file, which may not exist yet.
    Regular(PathBuf),
    /// A device or a pipe. It is open since before the run, so a pipe has a reader.
    Direct(Mutex<File>),
    /// The path leads to the stdout or stderr of this process.
    Stdout,
    /// As `Stdout`, for stderr.
    Stderr,
}

impl Sink {
    /// Finds out what is at a path; `option` is the option that named it.
    ///
    /// # Errors
    /// If the path cannot be written, as far as that is known before the run.
    pub(crate) fn open(option: &str, path: &Path) -> Result<Sink> {
        let wrong = |what: &str| Error::spec(format!("{option} {}: {what}", path.display()));
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let Ok(found) = path.metadata() else {
            return if folder.is_some_and(|folder| !folder.is_dir()) || path.file_name().is_none() {
                Err(wrong("name a file in an existing folder"))
            } else if path.is_symlink() {
                Err(wrong("the link has no target"))
            } else {
                Ok(Sink::Regular(path.to_path_buf()))
            };
        };
        if found.is_dir() {
            return Err(wrong("name a file in an existing folder"));
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileTypeExt;
            for (fd, sink) in [("/dev/fd/1", Sink::Stdout), ("/dev/fd/2", Sink::Stderr)] {
                let own = Path::new(fd).metadata();
                if own.is_ok_and(|own| is_same_file(&own, &found)) {
                    return Ok(sink);
                }
            }
            if found.file_type().is_socket() {
                return Err(wrong("it is a socket; name a file, a device or a pipe"));
            }
            if !found.is_file() {
                let file = open_directly(path, found.file_type().is_fifo());
                return match file {
                    Ok(file) => Ok(Sink::Direct(Mutex::new(file))),
                    Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Err(wrong(
                        "no program reads this pipe; start its reader before the run",
                    )),
                    Err(e) => Err(wrong(&format!("it cannot be written ({e})"))),
                };
            }
        }
        // Keep a link and replace its target.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        Ok(Sink::Regular(path))
    }

    /// Replaces the content. A reader sees either the old or the new text.
    pub(crate) fn replace(&self, text: &str) -> io::Result<()> {
        match self {
            Sink::Regular(path) => replace(path, text),
            _ => self.append(text),
        }
    }

    /// Appends a text in one write, so that runs that share a file do not mix their lines.
    pub(crate) fn append(&self, text: &str) -> io::Result<()> {
        let write = |to: &mut dyn Write, is_terminal: bool| {
            let text = if is_terminal {
                printable(text)
            } else {
                text.into()
            };
            to.write_all(text.as_bytes()).and_then(|()| to.flush())
        };
        match self {
            Sink::Regular(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                write(&mut file?, false)
            }
            Sink::Direct(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let is_terminal = file.is_terminal();
                write(&mut *file, is_terminal)
            }
            Sink::Stdout => write(&mut io::stdout().lock(), io::stdout().is_terminal()),
            Sink::Stderr => write(&mut io::stderr().lock(), io::stderr().is_terminal()),
        }
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let replaced = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    if replaced.is_err() {
        std::fs::remove_file(&new).ok();
    }
    replaced
}

#[cfg(unix)]
fn is_same_file(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Opens a device or a pipe. Opening a pipe without a reader would block, so this is probed first;
/// if it has one, writing may wait for it.
#[cfg(unix)]
fn open_directly(path: &Path, is_pipe: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.write(true);
    let probe = || options.clone().custom_flags(libc::O_NONBLOCK).open(path);
    let _probe = is_pipe.then(probe).transpose()?;
    options.open(path)
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, symlink};

    fn refused(path: &Path) -> String {
        let e = Sink::open("--metrics", path).err().expect("refused");
        assert_eq!(e.kind(), Kind::Spec);
        e.full()
    }

    #[test]
    fn a_page_is_replaced_as_a_whole_and_links_to_it_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("a.prom"), folder.path().join("link"));
        for text in ["old\n", "new\n"] {
            let sink = Sink::open("--metrics", &path).expect("a file");
            sink.replace(text).expect("a page");
        }
        symlink("a.prom", &link).expect("a link");
        let sink = Sink::open("--metrics", &link).expect("a file");
        sink.replace("newer\n").expect("a page");
        sink.append("more\n").expect("a line");
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&path).expect("a page"), "newer\nmore\n");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    fn devices_and_pipes_are_written_directly() {
        let full = Sink::open("--metrics", Path::new("/dev/full")).expect("a device");
        full.replace("x").expect_err("it is full");
        let device = fs::metadata("/dev/full").expect("it is there");
        assert!(device.file_type().is_char_device());
        let null = Sink::open("--metrics", Path::new("/dev/null")).expect("a device");
        null.replace("x").expect("it takes all");

        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()));
        assert!(refused(&pipe).contains("no program reads this pipe"));
        let from = pipe.clone();
        let reader = std::thread::spawn(move || fs::read_to_string(from).expect("text"));
        let sink = loop {
            match Sink::open("--lineage", &pipe) {
                Ok(sink) => break sink,
                Err(_) => std::thread::yield_now(),
            }
        };
        sink.append("a\n").expect("a line");
        sink.append("b\n").expect("a line");
        drop(sink);
        assert_eq!(reader.join().expect("text"), "a\nb\n");
        let left = fs::metadata(&pipe).expect("it is there");
        assert!(left.file_type().is_fifo());
    }

    #[test]
    fn unwritable_paths_are_refused_before_a_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        assert!(refused(folder.path()).contains("name a file in an existing folder"));
        assert!(refused(&at("none/a.prom")).contains("name a file in an existing folder"));
        symlink("nothing", at("link")).expect("a link");
        assert!(refused(&at("link")).contains("the link has no target"));
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        assert!(refused(&at("socket")).contains("it is a socket"));
    }
}
