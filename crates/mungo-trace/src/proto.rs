//! A small writer of protocol buffers: fields of numbers, bytes and messages. For mungo's own crates.

/// Bytes of a message.
#[derive(Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    /// Makes an empty message.
    pub fn new() -> Message {
        Message::default()
    }

    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn key(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    /// Adds a number (uint32, uint64, int64, an enum).
    pub fn number(mut self, field: u32, n: u64) -> Message {
        self.key(field, 0);
        self.varint(n);
        self
    }

    /// Adds a number of eight bytes (fixed64).
    pub fn fixed(mut self, field: u32, n: u64) -> Message {
        self.key(field, 1);
        self.0.extend(n.to_le_bytes());
        self
    }

    /// Adds a text.
    pub fn text(self, field: u32, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    /// Adds a message.
    pub fn message(self, field: u32, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn fields_are_encoded_as_the_specification_says() {
        // The examples of the encoding's own documentation.
        assert_eq!(Message::new().number(1, 150).0, [0x08, 0x96, 0x01]);
        assert_eq!(Message::new().text(2, "testing").0, [0x12, 7, b't', b'e', b's', b't', b'i', b'n', b'g']);
        let inner = Message::new().number(1, 150);
        assert_eq!(Message::new().message(3, &inner).0, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::new().fixed(47, 1).0, [0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
