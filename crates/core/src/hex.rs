//! Bytes as people and file names have them.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Two lower-case digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_digits_for_each_byte() {
        assert_eq!(super::hex(&[0, 0x0f, 0xf0, 0xff]), "000ff0ff");
        assert_eq!(super::hex(&[]), "");
    }
}
