//! Servers installed on this machine: versitygw, nginx and Python's `http.server`.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

/// An installed server for one directory on a free loopback port, until dropped.
#[derive(Debug)]
pub struct InstalledServer {
    child: Child,
    address: SocketAddr,
    /// Directory of its configuration and log.
    scratch: PathBuf,
}

/// Access key of [`InstalledServer::versitygw`].
pub const VERSITYGW_KEY: &str = "bowwave-test";

/// Secret key of [`InstalledServer::versitygw`].
pub const VERSITYGW_SECRET: &str = "bowwave-secret";

impl InstalledServer {
    /// Starts versitygw, an S3 gateway, over `directory`: each directory in it is a bucket.
    ///
    /// Credentials are [`VERSITYGW_KEY`] and [`VERSITYGW_SECRET`], the region is `us-east-1`. Files
    /// created in the directory by other programs are objects without an ETag.
    ///
    /// # Errors
    /// If it is not installed (see [`program`]) or does not listen within 10 s; the error holds its
    /// log.
    pub fn versitygw(directory: &Path) -> io::Result<Self> {
        Self::start("versitygw", |address, scratch| {
            let mut command = Command::new(program("versitygw")?);
            command
                .args(["--access", VERSITYGW_KEY, "--secret", VERSITYGW_SECRET, "--quiet"])
                .args(["--iam-dir".as_ref(), scratch.join("iam").as_os_str()])
                .args(["--port", &address.to_string(), "posix"])
                .arg(directory);
            fs::create_dir(scratch.join("iam"))?;
            Ok(command)
        })
    }

    /// Starts nginx over `directory`, with the `directives` in its `server` block, for example
    /// `autoindex on;`.
    ///
    /// # Errors
    /// If it is not installed (see [`program`]) or does not listen within 10 s; the error holds its
    /// log.
    pub fn nginx(directory: &Path, directives: &str) -> io::Result<Self> {
        Self::start("nginx", |address, scratch| {
            let mut command = Command::new(program("nginx")?);
            let config = scratch.join("nginx.conf");
            let (root, scratch) = (directory.display(), scratch.display());
            // As root, workers would run as another user without access to the tests' directories.
            let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
            fs::write(
                &config,
                format!(
                    "{user} daemon off; pid {scratch}/pid; error_log stderr; worker_processes 1;
                     events {{ worker_connections 256; }}
                     http {{
                         access_log off; client_body_temp_path {scratch}/body; proxy_temp_path {scratch}/proxy;
                         fastcgi_temp_path {scratch}/fastcgi; uwsgi_temp_path {scratch}/uwsgi;
                         scgi_temp_path {scratch}/scgi;
                         server {{ listen {address}; root '{root}'; {directives} }}
                     }}\n"
                ),
            )?;
            command.args(["-p", &scratch.to_string(), "-c"]).arg(config);
            Ok(command)
        })
    }

    /// Starts `python3 -m http.server` over `directory`: it lists directories, and has no ranges
    /// and no ETags.
    ///
    /// # Errors
    /// If it is not installed (see [`program`]) or does not listen within 10 s; the error holds its
    /// log.
    pub fn python(directory: &Path) -> io::Result<Self> {
        Self::start("python3", |address, _| {
            let mut command = Command::new(program("python3")?);
            command
                .args(["-m", "http.server", "--bind", &address.ip().to_string()])
                .arg("--directory")
                .arg(directory)
                .arg(address.port().to_string());
            Ok(command)
        })
    }

    /// Its URL; ends in `/`.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn start(name: &str, command: impl FnOnce(SocketAddr, &Path) -> io::Result<Command>) -> io::Result<Self> {
        // Free until the server binds it: nothing else on loopback requests a port by number.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let scratch = env::temp_dir().join(format!("bowwave-{name}-{}", address.port()));
        fs::create_dir(&scratch)?;
        let log = scratch.join("log");
        let started = command(address, &scratch).and_then(|mut command| {
            let file = File::create(&log)?;
            // In its own process group, so that its workers end with it.
            command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0).spawn()
        });
        let child = match started {
            Ok(child) => child,
            Err(error) => {
                fs::remove_dir_all(&scratch)?;
                return Err(error);
            }
        };
        let mut server = Self { child, address, scratch };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(address).is_err() {
            if server.child.try_wait()?.is_some() || Instant::now() > deadline {
                let mut said = String::new();
                File::open(&log)?.read_to_string(&mut said)?;
                return Err(io::Error::other(format!("{name} does not listen on {address}: {said}")));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for InstalledServer {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        // It may have ended on its own.
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        self.child.wait().ok();
        fs::remove_dir_all(&self.scratch).ok();
    }
}

/// The path of an installed program: in `PATH`, the `sbin` directories, or where `tools/setup.sh`
/// installs it.
///
/// # Errors
/// [`io::ErrorKind::NotFound`], with the command that installs it.
pub fn program(name: &str) -> io::Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = env::split_paths(&path).collect();
    directories.extend([target.join("tools/bin"), "/usr/sbin".into(), "/sbin".into()]);
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    directories.iter().map(|directory| directory.join(name)).find(is_program).ok_or_else(|| {
        let message = format!("{name} is not installed (try: tools/setup.sh servers)");
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_ends_with_its_value_and_leaves_no_files() {
        let server = InstalledServer::python(&env::temp_dir()).expect("Python is installed");
        let (address, scratch) = (server.address, server.scratch.clone());
        assert!(TcpStream::connect(address).is_ok());
        drop(server);
        assert!(TcpStream::connect(address).is_err());
        assert!(!scratch.exists());
    }

    #[test]
    fn a_missing_program_is_named_with_the_command_that_installs_it() {
        let error = program("no-such-program").unwrap_err();
        assert_eq!(error.to_string(), "no-such-program is not installed (try: tools/setup.sh servers)");
    }
}
