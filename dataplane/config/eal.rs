//! `[eal]`: what DPDK's environment abstraction layer is started with.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// `[eal]`. Options on the command line win over these keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EalKeys {
    /// Logical cores, the main one included: `"0-2"`, `[0, 1, 2]`, or with a CPU each: `"0@0,1@0"`.
    pub lcores: Option<LcoreText>,
    /// The lcore that runs control; the lowest one by default.
    pub main_lcore: Option<u32>,
    /// Where buffers live.
    pub hugepages: Option<Hugepages>,
    /// Memory in MiB; sized by the plan by default.
    pub memory_mib: Option<u32>,
    /// Name that keeps this process apart from other DPDK processes.
    pub file_prefix: Option<String>,
    /// Kind of bus addresses.
    pub iova: Option<Iova>,
    /// PCI devices to take, in addition to those of `[[port]]`.
    pub allow: Vec<String>,
    /// PCI devices to leave alone.
    pub block: Vec<String>,
    /// Virtual devices to make, in addition to those of `[[port]]`.
    pub vdev: Vec<String>,
    /// Further EAL options, one word each.
    pub extra: Vec<String>,
}

/// `eal.hugepages`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hugepages {
    /// Hugepages without files where the machine has enough of them, otherwise none.
    #[default]
    Auto,
    /// Hugepages as files in hugetlbfs; secondary processes can attach.
    Huge,
    /// Hugepages without files.
    InMemory,
    /// Ordinary pages.
    NoHuge,
}

/// `eal.iova`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Iova {
    /// Virtual addresses: one contiguous region per pool.
    Va,
    /// Physical addresses.
    Pa,
}

impl Iova {
    /// The word that EAL takes.
    pub fn word(self) -> &'static str {
        match self {
            Self::Va => "va",
            Self::Pa => "pa",
        }
    }
}

/// A list of lcores in EAL's notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LcoreText(pub String);

impl<'de> Deserialize<'de> for LcoreText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LcoreVisitor)
    }
}

struct LcoreVisitor;

impl<'de> Visitor<'de> for LcoreVisitor {
    type Value = LcoreText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lcores such as \"0-2\", \"0@0,1@0\" or [0, 1, 2]")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(LcoreText(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut ids = Vec::new();
        while let Some(id) = list.next_element::<u32>()? {
            ids.push(id.to_string());
        }
        Ok(LcoreText(ids.join(",")))
    }
}
