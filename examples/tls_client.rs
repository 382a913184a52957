//! TLS in plain blocking code, on both ends: rustls reads and writes a `mungo::net::TcpStream` as it would std's. Fifty
//! clients at once, each of which checks the server's certificate; contexts and deadlines hold as without TLS.

use mungo::net::{TcpListener, TcpStream};
use mungo::sync::Group;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Greets each client by the line that it sends.
fn serve(listener: &TcpListener, config: &Arc<ServerConfig>) -> io::Result<()> {
    for stream in listener.incoming() {
        let (stream, config) = (stream?, config.clone());
        mungo::go(move || {
            let connection = ServerConnection::new(config).map_err(io::Error::other)?;
            let mut stream = BufReader::new(StreamOwned::new(connection, stream));
            let mut name = String::new();
            stream.read_line(&mut name)?; // shakes hands first
            let stream = stream.get_mut();
            write!(stream, "hello, {}", name.trim_end())?;
            stream.conn.send_close_notify();
            stream.flush()
        });
    }
    Ok(())
}

/// Sends a name, and returns the answer. All of it may take ten seconds.
fn greet(here: SocketAddr, config: &Arc<ClientConfig>, server: &str, name: &str) -> io::Result<String> {
    let server = ServerName::try_from(server.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect(here)?;
    let deadline = Some(Instant::now() + Duration::from_secs(10));
    stream.set_read_deadline(deadline);
    stream.set_write_deadline(deadline);
    let connection = ClientConnection::new(config.clone(), server).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    writeln!(stream, "{name}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[mungo::main]
fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let certificate = made.cert.der().clone();
    let server =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.clone()], key)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let here = listener.local_addr()?;
    mungo::go(move || serve(&listener, &Arc::new(server)));

    // A client of public servers has the roots of the crate webpki-roots here.
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let config = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    let group = Group::new();
    for i in 0..50 {
        let config = config.clone();
        group.go(move |_| greet(here, &config, "localhost", &format!("client {i}")));
    }
    let greetings = group.wait()?;
    let different: HashSet<_> = greetings.iter().collect();
    println!("{} connections, {} different greetings", greetings.len(), different.len());
    let refused =
        greet(here, &config, "example.org", "nobody").expect_err("it is not the name in the certificate");
    println!("for another name: {refused}");
    Ok(())
}
