//! Reads protobuf by the numbers of its fields, as the messages are described and not as the program writes them.

/// A field: its number, and its value.
#[derive(Debug, Clone)]
pub enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message, in their order.
#[derive(Debug, Clone, Default)]
pub struct Fields(Vec<(u64, Value)>);

impl Fields {
    /// Reads a message.
    ///
    /// # Panics
    /// It is not one.
    pub fn read(mut bytes: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => Value::Number(varint(&mut bytes)),
                1 => Value::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().expect("8 bytes"))),
                5 => Value::Number(u32::from_le_bytes(take(&mut bytes, 4).try_into().expect("4 bytes")).into()),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    Value::Bytes(take(&mut bytes, length).to_vec())
                }
                other => panic!("wire type {other}"),
            };
            fields.push((key >> 3, value));
        }
        Self(fields)
    }

    fn values(&self, number: u64) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |(n, _)| *n == number).map(|(_, value)| value)
    }

    /// The messages in a field.
    pub fn all(&self, number: u64) -> Vec<Self> {
        let read = |value: &Value| match value {
            Value::Bytes(bytes) => Self::read(bytes),
            Value::Number(_) => panic!("field {number} is a number"),
        };
        self.values(number).map(read).collect()
    }

    /// The message in a field; an empty one if it is absent.
    pub fn one(&self, number: u64) -> Self {
        self.all(number).pop().unwrap_or_default()
    }

    /// The number in a field; 0 if it is absent.
    pub fn number(&self, number: u64) -> u64 {
        self.values(number).last().map_or(0, |value| match value {
            Value::Number(number) => *number,
            Value::Bytes(_) => panic!("field {number} is no number"),
        })
    }

    /// The bytes in a field; none if it is absent.
    pub fn bytes(&self, number: u64) -> Vec<u8> {
        self.values(number).last().map_or_else(Vec::new, |value| match value {
            Value::Bytes(bytes) => bytes.clone(),
            Value::Number(_) => panic!("field {number} is a number"),
        })
    }

    /// The text in a field.
    pub fn text(&self, number: u64) -> String {
        String::from_utf8(self.bytes(number)).expect("a text")
    }

    /// The bytes in a field, as hexadecimal digits.
    pub fn hex(&self, number: u64) -> String {
        self.bytes(number).iter().map(|b| format!("{b:02x}")).collect()
    }
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}
