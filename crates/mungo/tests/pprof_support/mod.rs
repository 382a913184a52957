//! A small reader of pprof's files.

use std::collections::HashMap;

/// A decoded profile.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) types: Vec<(String, String)>,
    pub(crate) samples: Vec<DecodedSample>,
    pub(crate) build_ids: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct DecodedSample {
    pub(crate) values: Vec<u64>,
    /// Functions with file and line, the innermost first.
    pub(crate) frames: Vec<(String, String, u64)>,
    pub(crate) labels: HashMap<String, String>,
}

impl DecodedSample {
    pub(crate) fn is_in(&self, function: &str) -> bool {
        self.frames.iter().any(|(name, ..)| name.contains(function))
    }
}

/// A field: its number, and a number or bytes.
struct Field<'a> {
    number: u64,
    value: u64,
    bytes: &'a [u8],
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut n, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().expect("a byte");
        *bytes = rest;
        n |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return n;
        }
    }
}

fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let n = varint(&mut bytes);
        let (value, content) = match key & 7 {
            0 => (n, &bytes[..0]),
            2 => {
                let (content, rest) = bytes.split_at(n as usize);
                bytes = rest;
                (0, content)
            }
            other => panic!("a field of kind {other}"),
        };
        fields.push(Field { number: key >> 3, value, bytes: content });
    }
    fields
}

/// Decodes a gzipped profile; panics if something in it does not fit.
pub(crate) fn decode(file: &[u8]) -> Decoded {
    assert_eq!(file[..3], [0x1f, 0x8b, 8], "gzip, deflated");
    let bytes = miniz_oxide::inflate::decompress_to_vec(&file[10..file.len() - 8]).expect("deflated");
    let all = fields(&bytes);
    let of = |number| all.iter().filter(move |field| field.number == number).map(|field| fields(field.bytes));
    let one = |fields: &[Field<'_>], number| fields.iter().find(|f| f.number == number).map_or(0, |f| f.value);
    let texts: Vec<String> =
        all.iter().filter(|f| f.number == 6).map(|f| String::from_utf8(f.bytes.to_vec()).unwrap()).collect();
    let text = |n: u64| texts[n as usize].clone();
    assert_eq!(texts[0], "");
    let functions: HashMap<u64, (String, String)> =
        of(5).map(|f| (one(&f, 1), (text(one(&f, 2)), text(one(&f, 4))))).collect();
    let mappings: Vec<u64> = of(3).map(|f| one(&f, 1)).collect();
    let locations: HashMap<u64, Vec<(String, String, u64)>> = of(4)
        .map(|f| {
            assert!(one(&f, 2) == 0 || mappings.contains(&one(&f, 2)), "an unknown mapping");
            let lines = f.iter().filter(|f| f.number == 4).map(|line| {
                let line = fields(line.bytes);
                let (name, file) = functions[&one(&line, 1)].clone();
                (name, file, one(&line, 2))
            });
            (one(&f, 1), lines.collect())
        })
        .collect();
    let samples = of(2).map(|f| DecodedSample {
        values: f.iter().filter(|f| f.number == 2).map(|f| f.value).collect(),
        frames: f.iter().filter(|f| f.number == 1).flat_map(|f| locations[&f.value].clone()).collect(),
        labels: f
            .iter()
            .filter(|f| f.number == 3)
            .map(|label| {
                let label = fields(label.bytes);
                let value = match one(&label, 2) {
                    0 => one(&label, 3).to_string(),
                    n => text(n),
                };
                (text(one(&label, 1)), value)
            })
            .collect(),
    });
    Decoded {
        types: of(1).map(|f| (text(one(&f, 1)), text(one(&f, 2)))).collect(),
        samples: samples.collect(),
        build_ids: of(3).map(|f| text(one(&f, 6))).collect(),
    }
}
