//! The network of the cluster: one bridge, one block of addresses that nobody else uses.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::command::{output, run};
use super::state::BRIDGE;

/// The first two bytes of a /16 of private addresses: pods in `x.y.0.0/24`, services in
/// `x.y.1.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block(u8, u8);

/// Tried in this order; rarely used by others, so that a developer's VPN goes on working.
const BLOCKS: &[Block] = &[Block(10, 213), Block(10, 214), Block(172, 29), Block(192, 168)];

impl Block {
    pub(crate) fn bridge(self) -> Ipv4Addr {
        Ipv4Addr::new(self.0, self.1, 0, 1)
    }

    /// The first address of the services' block is the one Kubernetes gives to `kubernetes`.
    pub(crate) fn api(self) -> Ipv4Addr {
        Ipv4Addr::new(self.0, self.1, 1, 1)
    }

    pub(crate) fn pods(self) -> String {
        format!("{}.{}.0.0/24", self.0, self.1)
    }

    pub(crate) fn services(self) -> String {
        format!("{}.{}.1.0/24", self.0, self.1)
    }
}

/// The first block that no route of this machine touches. A default route touches none: it is for
/// what nothing else claims.
pub(crate) fn choose_block(routes: &[(Ipv4Addr, u32)]) -> Option<Block> {
    let overlaps = |block: Block, (network, length): (Ipv4Addr, u32)| {
        let mask = u32::MAX.checked_shl(32 - length.min(16)).unwrap_or(0);
        length > 0 && (u32::from(block.bridge()) & mask) == (u32::from(network) & mask)
    };
    BLOCKS.iter().copied().find(|block| !routes.iter().any(|route| overlaps(*block, *route)))
}

/// The destinations in `ip -j -4 route show table all`.
pub(crate) fn parse_routes(json: &str) -> Result<Vec<(Ipv4Addr, u32)>> {
    let routes: Vec<Value> = serde_json::from_str(json).context("output of `ip -j route`")?;
    let destinations = routes.iter().filter_map(|route| route["dst"].as_str());
    Ok(destinations
        .filter_map(|dst| match dst.split_once('/') {
            Some((network, length)) => Some((network.parse().ok()?, length.parse().ok()?)),
            None => Some((dst.parse().ok()?, 32)),
        })
        .collect())
}

/// A block for a new cluster, and no bridge of our name: `down` takes one without an alias for ours
/// once the state says that we were about to make it.
pub(crate) fn free_block(ip: &Path) -> Result<Block> {
    if let Some(alias) = link_alias(ip)? {
        bail!(
            "there is a network interface {BRIDGE} that is not of this testbed ({alias:?}); \
               if it is of another clone's or user's, run `cargo xtask testbed down` there"
        );
    }
    let routes = output(ip, &["-j", "-4", "route", "show", "table", "all"])?;
    choose_block(&parse_routes(&routes)?).with_context(|| {
        format!("every block of addresses the testbed knows is in use here: add one to {BLOCKS:?}")
    })
}

/// Makes the bridge. Its alias tells whose it is, should the state be lost.
pub(crate) fn make_bridge(ip: &Path, run_dir: &Path, block: Block) -> Result<()> {
    run(ip, &["link", "add", "name", BRIDGE, "type", "bridge"])?;
    run(ip, &["link", "set", BRIDGE, "alias", &alias(run_dir)])?;
    run(ip, &["address", "add", &format!("{}/24", block.bridge()), "dev", BRIDGE])?;
    // The API server listens on the service address itself, so that pods reach it as any
    // in-cluster client does, with no kube-proxy and no packet filter rules on this machine.
    run(ip, &["address", "add", &format!("{}/32", block.api()), "dev", BRIDGE])?;
    run(ip, &["link", "set", BRIDGE, "up"])
}

/// Removes the bridge if it is ours: by its alias or, when `up` was cut off before it could set
/// one, because the state says that `up` was about to make it.
pub(crate) fn remove_bridge(ip: &Path, run_dir: &Path, announced: bool) -> Result<()> {
    match link_alias(ip)? {
        Some(found) if found == alias(run_dir) || (announced && found.is_empty()) => {
            run(ip, &["link", "delete", BRIDGE])
        }
        _ => Ok(()),
    }
}

fn alias(run_dir: &Path) -> String {
    format!("portolan testbed {}", run_dir.display())
}

/// The alias of the bridge, empty if it has none; `None` when there is no such interface.
fn link_alias(ip: &Path) -> Result<Option<String>> {
    let links: Vec<Value> = serde_json::from_str(&output(ip, &["-j", "link", "show"])?)
        .context("output of `ip -j link`")?;
    let link = links.iter().find(|link| link["ifname"] == BRIDGE);
    Ok(link.map(|link| link["ifalias"].as_str().unwrap_or_default().to_owned()))
}

/// Ports that are free on every address of this machine, each another. A stranger may take one
/// before it is used; then that daemon's log says so and `up` is run again.
pub(crate) fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    // All are held until the last is found, or one could be found twice.
    let mut held = Vec::new();
    let mut ports = [0; COUNT];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("find a free port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_a_route_touches_is_passed_over() {
        let routes = |text: &str| choose_block(&parse_routes(text).unwrap());
        assert_eq!(routes("[]"), Some(Block(10, 213)));
        assert_eq!(routes(r#"[{"dst":"default"},{"dst":"0.0.0.0/0"}]"#), Some(Block(10, 213)));
        assert_eq!(routes(r#"[{"dst":"10.213.7.0/24"}]"#), Some(Block(10, 214)));
        assert_eq!(routes(r#"[{"dst":"10.213.0.9"}]"#), Some(Block(10, 214)));
        assert_eq!(routes(r#"[{"dst":"10.0.0.0/8"}]"#), Some(Block(172, 29)));
        let all = r#"[{"dst":"10.0.0.0/8"},{"dst":"172.16.0.0/12"},{"dst":"192.168.1.0/24"}]"#;
        assert_eq!(routes(all), None);
    }

    #[test]
    fn a_block_holds_its_addresses() {
        let block = Block(10, 213);
        assert_eq!(block.bridge().to_string(), "10.213.0.1");
        assert_eq!(block.api().to_string(), "10.213.1.1");
        assert_eq!(
            (block.pods().as_str(), block.services().as_str()),
            ("10.213.0.0/24", "10.213.1.0/24")
        );
    }
}
