//! The gzip format around a deflated block (RFC 1952).

use super::on_plain_thread;
use std::io::{self, Write};

/// Writes bytes in the gzip format.
pub(super) fn write(bytes: &[u8], mut to: impl Write) -> io::Result<()> {
    /// TUNED: guess; the usual one.
    const LEVEL: u8 = 6;
    const DEFLATE: u8 = 8;
    const UNKNOWN_SYSTEM: u8 = 255;
    to.write_all(&[0x1f, 0x8b, DEFLATE, 0, 0, 0, 0, 0, 0, UNKNOWN_SYSTEM])?;
    // The compressor is larger than the stack of many a goroutine, and in debug builds it is made on the stack.
    let packed = on_plain_thread(|| miniz_oxide::deflate::compress_to_vec(bytes, LEVEL));
    to.write_all(&packed)?;
    to.write_all(&checksum(bytes).to_le_bytes())?;
    to.write_all(&(bytes.len() as u32).to_le_bytes())?;
    to.flush()
}

/// Returns the CRC-32 of gzip and Ethernet.
fn checksum(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut rest, mut bit) = (byte as u32, 0);
            while bit < 8 {
                rest = if rest & 1 == 0 { rest >> 1 } else { rest >> 1 ^ 0xEDB8_8320 };
                bit += 1;
            }
            table[byte] = rest;
            byte += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |sum, byte| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(checksum(b"123456789"), 0xCBF4_3926);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn what_was_written_comes_back() {
        let bytes: Vec<u8> = (0..100_000u32).flat_map(|n| (n % 1000).to_le_bytes()).collect();
        let mut written = Vec::new();
        write(&bytes, &mut written).unwrap();
        let (head, rest) = written.split_at(10);
        let (body, tail) = rest.split_at(rest.len() - 8);
        assert_eq!(head[..3], [0x1f, 0x8b, 8]);
        assert!(body.len() < bytes.len() / 10);
        assert_eq!(miniz_oxide::inflate::decompress_to_vec(body).unwrap(), bytes);
        assert_eq!(tail[..4], checksum(&bytes).to_le_bytes());
        assert_eq!(tail[4..], (bytes.len() as u32).to_le_bytes());
    }
}
