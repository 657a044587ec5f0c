//! EAL options given on the command line, laid over the configuration. The command line wins.
//!
//! Options that the plan has to know (cores, memory, devices) become keys; all others are passed on to EAL as
//! they are. A single-valued option replaces its key. `--vdev`, `-a` and `-b` add to the lists of the file, and
//! one that names the device of a `[[port]]` replaces the arguments of that device.

use super::eal::{EalKeys, Hugepages, Iova, LcoreText};
use super::{Config, PortKeys};

/// An EAL option that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EalWordError {
    /// The words before `--` do not begin with an option.
    #[error("`{word}` stands before `--` but is no EAL option; write: isthmus [EAL options] -- COMMAND")]
    NotAnOption {
        /// The word.
        word: String,
    },
    /// An option at the end without its value.
    #[error("EAL option `{option}` needs a value; give it after the option")]
    MissingValue {
        /// The option.
        option: String,
    },
    /// A value of the wrong form.
    #[error("EAL option `{option} {value}`: not {wanted}")]
    BadValue {
        /// The option.
        option: String,
        /// Its value.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// Options that exclude each other.
    #[error("EAL options `--no-huge` and `--in-memory` exclude each other; give one of them")]
    MemoryTwice,
}

/// Options that the plan interprets, with their short form.
const INTERPRETED: [(&str, &str); 10] = [
    ("--lcores", "-l"),
    ("--coremask", "-c"),
    ("--main-lcore", ""),
    ("--no-huge", ""),
    ("--in-memory", ""),
    ("--memory", "-m"),
    ("--file-prefix", ""),
    ("--iova-mode", ""),
    ("--allow", "-a"),
    ("--block", "-b"),
];

/// Lays `words` over `config`.
///
/// # Errors
/// A word that EAL would refuse as well: no option, no value, or a value of the wrong form.
pub fn apply_eal_words(config: &mut Config, words: &[String]) -> Result<(), EalWordError> {
    if let Some(word) = words.first().filter(|word| !word.starts_with('-')) {
        return Err(EalWordError::NotAnOption { word: word.clone() });
    }
    let mut hugepages = None;
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let Some((option, attached)) = recognise(word) else {
            config.eal.extra.push(word.clone());
            continue;
        };
        if let Some(mode) = memory_mode(option) {
            if hugepages.is_some_and(|other| other != mode) {
                return Err(EalWordError::MemoryTwice);
            }
            hugepages = Some(mode);
            config.eal.hugepages = hugepages;
            continue;
        }
        let next = || rest.next().cloned().ok_or(EalWordError::MissingValue { option: option.to_owned() });
        let value = attached.map_or_else(next, Ok)?;
        apply_value(config, option, value)?;
    }
    Ok(())
}

/// The EAL options among `words` that have a key of their own in `[eal]`, with that key.
pub(crate) fn keyed_words(words: &[String]) -> Vec<(String, &'static str)> {
    let keyed = |word: &String| recognise(word).map(|(option, _)| (word.clone(), key_of(option)));
    words.iter().filter_map(keyed).collect()
}

fn key_of(option: &str) -> &'static str {
    match option {
        "--lcores" | "--coremask" => "lcores",
        "--main-lcore" => "main_lcore",
        "--no-huge" | "--in-memory" => "hugepages",
        "--memory" => "memory_mib",
        "--file-prefix" => "file_prefix",
        "--iova-mode" => "iova",
        "--allow" => "allow",
        "--block" => "block",
        _ => "vdev",
    }
}

/// The long name of an interpreted option and the value attached to it (`--lcores=0-1`, `-l0-1`).
fn recognise(word: &str) -> Option<(&'static str, Option<String>)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) if word.starts_with("--") => (name, Some(value.to_owned())),
        _ => (word, None),
    };
    if name == "--vdev" {
        return Some(("--vdev", value));
    }
    for (long, short) in INTERPRETED {
        if name == long {
            return Some((long, value));
        }
        if !short.is_empty() && !word.starts_with("--") {
            match word.strip_prefix(short) {
                Some("") => return Some((long, None)),
                Some(attached) => return Some((long, Some(attached.to_owned()))),
                None => {}
            }
        }
    }
    None
}

fn memory_mode(option: &str) -> Option<Hugepages> {
    match option {
        "--no-huge" => Some(Hugepages::NoHuge),
        "--in-memory" => Some(Hugepages::InMemory),
        _ => None,
    }
}

fn apply_value(config: &mut Config, option: &'static str, value: String) -> Result<(), EalWordError> {
    let bad = |wanted| EalWordError::BadValue { option: option.to_owned(), value: value.clone(), wanted };
    let eal: &mut EalKeys = &mut config.eal;
    match option {
        "--lcores" => eal.lcores = Some(LcoreText(value)),
        "--coremask" => {
            eal.lcores = Some(LcoreText(mask_to_list(&value).ok_or(bad("a hexadecimal core mask"))?));
        }
        "--main-lcore" => eal.main_lcore = Some(value.parse().map_err(|_| bad("an lcore number"))?),
        "--memory" => eal.memory_mib = Some(value.parse().map_err(|_| bad("a number of MiB"))?),
        "--file-prefix" => eal.file_prefix = Some(value),
        "--iova-mode" => {
            eal.iova = Some(match value.as_str() {
                "va" => Iova::Va,
                "pa" => Iova::Pa,
                _ => return Err(bad("va or pa")),
            });
        }
        "--allow" => add_device(&mut config.port, &mut eal.allow, value),
        "--block" => eal.block.push(value),
        _ => add_device(&mut config.port, &mut eal.vdev, value),
    }
    Ok(())
}

/// A device of a `[[port]]` takes the new arguments; any other one is added to `list`.
fn add_device(ports: &mut [PortKeys], list: &mut Vec<String>, device: String) {
    let name = device_name(&device).to_owned();
    let mut known = false;
    for port in ports.iter_mut().filter(|port| device_name(&port.device) == name) {
        port.device.clone_from(&device);
        known = true;
    }
    if !known {
        list.retain(|listed| device_name(listed) != name);
        list.push(device);
    }
}

/// The device without its arguments.
pub(crate) fn device_name(device: &str) -> &str {
    device.split(',').next().unwrap_or(device).trim()
}

fn mask_to_list(mask: &str) -> Option<String> {
    let digits = mask.strip_prefix("0x").or(mask.strip_prefix("0X")).unwrap_or(mask);
    let bits = u128::from_str_radix(digits, 16).ok().filter(|bits| *bits != 0)?;
    let ids = (0..128).filter(|id| bits >> id & 1 == 1);
    Some(ids.map(|id: u32| id.to_string()).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(words: &[&str]) -> Config {
        let mut config = Config {
            port: vec![PortKeys { device: "net_null0,size=64".into(), ..PortKeys::default() }],
            ..Config::default()
        };
        config.eal.memory_mib = Some(512);
        config.eal.vdev = vec!["net_ring0".into()];
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        apply_eal_words(&mut config, &words).unwrap();
        config
    }

    #[test]
    fn the_command_line_replaces_single_values() {
        let eal = applied(&["-l", "0-2", "-m256", "--iova-mode=pa", "--no-huge", "--main-lcore", "2"]).eal;
        assert_eq!(eal.lcores, Some(LcoreText("0-2".into())));
        assert_eq!(eal.memory_mib, Some(256));
        assert_eq!(eal.iova, Some(Iova::Pa));
        assert_eq!(eal.hugepages, Some(Hugepages::NoHuge));
        assert_eq!(eal.main_lcore, Some(2));
        assert!(eal.extra.is_empty());
    }

    #[test]
    fn device_options_replace_the_same_device_and_add_others() {
        let config =
            applied(&["--vdev", "net_null0,size=1500", "--vdev=net_ring0,x=1", "--vdev", "net_tap0"]);
        assert_eq!(config.port[0].device, "net_null0,size=1500");
        assert_eq!(config.eal.vdev, ["net_ring0,x=1", "net_tap0"]);
    }

    #[test]
    fn other_options_pass_through_in_order() {
        let eal = applied(&["--log-level", "lib.eal:debug", "-n", "4", "-c", "0x5"]).eal;
        assert_eq!(eal.extra, ["--log-level", "lib.eal:debug", "-n", "4"]);
        assert_eq!(eal.lcores, Some(LcoreText("0,2".into())));
    }

    #[test]
    fn slips_are_refused() {
        let refuse = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            apply_eal_words(&mut Config::default(), &words).unwrap_err()
        };
        assert_eq!(refuse(&["run", "x.toml"]), EalWordError::NotAnOption { word: "run".into() });
        assert_eq!(refuse(&["-l"]), EalWordError::MissingValue { option: "--lcores".into() });
        assert_eq!(refuse(&["--no-huge", "--in-memory"]), EalWordError::MemoryTwice);
        assert!(matches!(refuse(&["-m", "lots"]), EalWordError::BadValue { .. }));
        assert!(matches!(refuse(&["-c", "zz"]), EalWordError::BadValue { .. }));
    }
}
