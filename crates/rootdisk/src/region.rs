//! Where a layer's data goes.
//!
//! A layer's place in the disk must be known before its first byte is inflated, and must not
//! depend on which layer happened to be faster. So each layer gets a *region* whose base and
//! capacity follow from the sizes in the manifest alone: [`FACTOR`] times its compressed size in
//! units of [`UNIT`], one after the other in the order of the layers. A layer that inflates to
//! more goes on in *arenas* of [`ARENA`] bytes behind all regions: its k-th is number
//! `k * layers + layer`. Nothing is reserved by that but numbers: what is not written is a hole.
//!
//! All of this is part of the format version.

use crate::checksum::CHUNK;
use crate::tree::BLOCK;

/// How many times its compressed size a layer may take before it needs an arena. Layers of real
/// images inflate to two or three times their size.
pub const FACTOR: u64 = 4;

/// Bytes that a region's capacity is a multiple of.
pub const UNIT: u64 = 4 * 1024 * 1024;

/// Bytes of an arena.
pub const ARENA: u64 = 64 * 1024 * 1024;

/// Blocks of a checksum's chunk. Regions and arenas begin and end with one, so that no two
/// layers, which are written by different threads, ever share a chunk.
const CHUNK_BLOCKS: u64 = (CHUNK / BLOCK) as u64;

/// Blocks one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// The first.
    pub base: u32,
    /// How many; never 0.
    pub blocks: u32,
}

impl Area {
    /// The first block behind it.
    pub fn end(self) -> u32 {
        self.base + self.blocks
    }
}

/// Where each layer's data goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    regions: Vec<Area>,
    /// The first block of the first arena.
    arenas: u64,
    max_bytes: u64,
}

/// The disk would have to be larger than it may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the disk would reach byte {needed}, more than the {max} it may have, holes included; raise `max_virtual_bytes` or build the image with fewer, less compressible layers"
)]
pub struct TooLarge {
    /// How large it would have to be at least.
    pub needed: u64,
    /// The limit.
    pub max: u64,
}

impl Plan {
    /// A plan for layers of these compressed sizes, bottom first, behind `first_block`, in a disk
    /// of at most `max_bytes`, which is no more than 32-bit block numbers reach.
    pub fn new(first_block: u32, compressed: &[u64], max_bytes: u64) -> Result<Self, TooLarge> {
        let max_bytes = max_bytes.min(u64::from(u32::MAX) * BLOCK as u64);
        let mut next = u64::from(first_block).next_multiple_of(CHUNK_BLOCKS);
        let mut regions = Vec::with_capacity(compressed.len());
        for size in compressed {
            let bytes = size.saturating_mul(FACTOR).div_ceil(UNIT).max(1).saturating_mul(UNIT);
            let area = area(next, bytes / BLOCK as u64, max_bytes)?;
            next = u64::from(area.end());
            regions.push(area);
        }
        Ok(Self { regions, arenas: next, max_bytes })
    }

    /// The `nth` area of a layer: first its region, then its arenas.
    ///
    /// # Panics
    /// For a layer that the plan was not made for.
    pub fn area(&self, layer: usize, nth: u32) -> Result<Area, TooLarge> {
        let Some(k) = nth.checked_sub(1) else { return Ok(self.regions[layer]) };
        assert!(layer < self.regions.len(), "the plan is for {} layers", self.regions.len());
        let blocks = ARENA / BLOCK as u64;
        // Below 2^32 times the number of layers, which came from a manifest of 4 MiB.
        let number = u64::from(k) * self.regions.len() as u64 + layer as u64;
        area(self.arenas.saturating_add(number.saturating_mul(blocks)), blocks, self.max_bytes)
    }

    /// The first block behind all regions; the arenas that layers used may lie further on.
    pub fn end_of_regions(&self) -> u32 {
        u32::try_from(self.arenas).expect("the end of the last region was checked")
    }
}

fn area(base: u64, blocks: u64, max: u64) -> Result<Area, TooLarge> {
    let needed = base.saturating_add(blocks).saturating_mul(BLOCK as u64);
    match (u32::try_from(base), u32::try_from(blocks)) {
        (Ok(base), Ok(blocks)) if needed <= max => Ok(Area { base, blocks }),
        _ => Err(TooLarge { needed, max }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn regions_follow_each_other_and_arenas_take_turns() {
        let plan = Plan::new(10, &[0, 3 * MIB, 1], 1 << 40).unwrap();
        let region = |base, blocks| Area { base, blocks };
        assert_eq!(plan.area(0, 0), Ok(region(256, 1024)), "behind the next whole chunk");
        assert_eq!(plan.area(1, 0), Ok(region(1280, 3072)));
        assert_eq!(plan.area(2, 0), Ok(region(4352, 1024)));
        assert_eq!(plan.end_of_regions(), 5376);
        assert_eq!(plan.area(0, 1), Ok(region(5376, 16384)));
        assert_eq!(plan.area(2, 1), Ok(region(5376 + 2 * 16384, 16384)));
        assert_eq!(plan.area(1, 2), Ok(region(5376 + 4 * 16384, 16384)));
    }

    #[test]
    fn the_disk_has_a_largest_size() {
        let error = Plan::new(0, &[300 * MIB], 1024 * MIB).unwrap_err();
        assert_eq!(error, TooLarge { needed: 1200 * MIB, max: 1024 * MIB });
        assert!(Plan::new(0, &[u64::MAX, u64::MAX], u64::MAX).is_err());
        let plan = Plan::new(0, &[MIB], 100 * MIB).unwrap();
        assert!(plan.area(0, 1).is_ok());
        assert_eq!(plan.area(0, 2).unwrap_err().needed, 132 * MIB);
        assert!(plan.area(0, u32::MAX).is_err());
    }

    proptest! {
        #[test]
        fn no_two_areas_overlap(
            sizes in prop::collection::vec(0..200 * MIB, 1..12),
            first in 0_u32..100_000,
        ) {
            let plan = Plan::new(first, &sizes, 1 << 43).unwrap();
            let mut areas: Vec<Area> = (0..sizes.len())
                .flat_map(|layer| (0..4).map(move |nth| (layer, nth)))
                .map(|(layer, nth)| plan.area(layer, nth).unwrap())
                .collect();
            areas.sort_by_key(|area| area.base);
            prop_assert!(areas[0].base >= first);
            for pair in areas.windows(2) {
                prop_assert!(pair[0].end() <= pair[1].base, "{pair:?}");
            }
            for area in areas {
                prop_assert_eq!(u64::from(area.base) % CHUNK_BLOCKS, 0);
                prop_assert_eq!(u64::from(area.blocks) % CHUNK_BLOCKS, 0);
            }
        }

        #[test]
        fn a_region_holds_four_times_the_layer_and_knows_nothing_of_layers_above(
            sizes in prop::collection::vec(0..200 * MIB, 1..12),
            more in 0..200 * MIB,
        ) {
            let plan = Plan::new(0, &sizes, 1 << 43).unwrap();
            let taller = Plan::new(0, &[&sizes[..], &[more]].concat(), 1 << 43).unwrap();
            for (layer, size) in sizes.iter().enumerate() {
                let area = plan.area(layer, 0).unwrap();
                prop_assert!(u64::from(area.blocks) * BLOCK as u64 >= size * FACTOR);
                prop_assert_eq!(taller.area(layer, 0).unwrap(), area);
            }
        }
    }
}
