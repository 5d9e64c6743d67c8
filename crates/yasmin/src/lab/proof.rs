//! Whether the bytes of a run went by the path that its figure claims.

use super::counters::Carried;
use super::way::Path;
use yasmin_measure::figure;

/// At least so much of the payload must have gone by TCP.
const SHARE: f64 = 0.8;
/// The same for rings. Under `yasmin run` bytes also go by TCP, whenever the receiver sleeps, as it
/// does where CPUs are crowded: rings must have carried most, and more than interfaces did.
const RING_SHARE: f64 = 0.5;
/// At most so much of the payload may have gone by a path that was not claimed.
const ASTRAY: f64 = 0.2;
/// What launchers and ranks send by TCP to start and end: up to 20 kB for each rank with the
/// launchers that were looked at.
const LAUNCH_BYTES: u64 = 64 << 10;
const LAUNCH_BYTES_EACH: u64 = 32 << 10;
/// OpenSHMEM's launcher sends nothing, but new interfaces greet each other.
const GREETING_BYTES: u64 = 8 << 10;

/// # Errors
/// Where the bytes went, for people.
pub fn check(path: Path, workers: u32, moved_bytes: u64, carried: &Carried) -> Result<(), String> {
    let least = (SHARE * moved_bytes as f64) as u64;
    let most = (ASTRAY * moved_bytes as f64) as u64;
    let launch = match path {
        Path::Segments => GREETING_BYTES,
        _ => LAUNCH_BYTES + LAUNCH_BYTES_EACH * u64::from(workers),
    };
    let rings = carried.ring_bytes.unwrap_or_default();
    let of = |bytes: u64| {
        let (bytes, all) = (figure::bytes(bytes as f64), figure::bytes(moved_bytes as f64));
        format!("{bytes} of {all}")
    };
    let by_interface = || {
        let bytes = carried.interface_bytes;
        if bytes > most + launch {
            return Err(format!("{} went through network interfaces", of(bytes)));
        }
        Ok(())
    };
    match path {
        Path::Tcp => {
            if carried.interface_bytes < least {
                return Err(format!(
                    "only {} went through network interfaces",
                    of(carried.interface_bytes)
                ));
            }
            if rings > most {
                return Err(format!("{} went through rings", of(rings)));
            }
            Ok(())
        }
        Path::Rings if moved_bytes == 0 => Ok(()),
        Path::Rings => {
            if carried.ring_bytes.is_none() {
                return Err("no broker answered, so nothing says that rings were used".to_owned());
            }
            if rings < (RING_SHARE * moved_bytes as f64) as u64 {
                return Err(format!("only {} went through rings", of(rings)));
            }
            if carried.interface_bytes >= rings {
                return Err(format!(
                    "{} through network interfaces are more than {} through rings",
                    figure::bytes(carried.interface_bytes as f64),
                    figure::bytes(rings as f64)
                ));
            }
            Ok(())
        }
        Path::Sockmap => {
            if carried.redirected_bytes < least {
                return Err(format!("only {} were redirected", of(carried.redirected_bytes)));
            }
            if rings > most {
                return Err(format!("{} went through rings", of(rings)));
            }
            Ok(())
        }
        // No counter is theirs alone: shown by what the others did not carry.
        Path::Unix | Path::MpiShm | Path::Segments | Path::Iceoryx2 | Path::Memory => {
            if moved_bytes > 0 && most + launch >= moved_bytes {
                let all = figure::bytes(moved_bytes as f64);
                return Err(format!("{all} are too few to tell which way they went"));
            }
            if rings > most {
                return Err(format!("{} went through rings", of(rings)));
            }
            by_interface()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn carried(interface_bytes: u64, ring_bytes: Option<u64>) -> Carried {
        Carried { interface_bytes, ring_bytes, ..Carried::default() }
    }

    #[test]
    fn each_path_is_proven_by_its_own_bytes_only() {
        let by_tcp = carried(10 * MIB + 4000, Some(0));
        let by_ring = carried(50_000, Some(10 * MIB));
        let by_neither = carried(50_000, Some(0));
        let by_map = Carried { redirected_bytes: 10 * MIB, ..by_neither };
        for (path, good) in [
            (Path::Tcp, by_tcp),
            (Path::Rings, by_ring),
            (Path::Unix, by_neither),
            (Path::MpiShm, by_neither),
            (Path::Segments, by_neither),
            (Path::Memory, by_neither),
            (Path::Sockmap, by_map),
        ] {
            for way in [by_tcp, by_ring, by_neither] {
                let proven = check(path, 2, 10 * MIB, &way).is_ok();
                assert_eq!(proven, way == good, "{path:?} {way:?}");
            }
        }
    }

    #[test]
    fn without_a_broker_nothing_is_a_ring() {
        let error = check(Path::Rings, 2, 10 * MIB, &carried(10 * MIB, None)).unwrap_err();
        assert!(error.contains("no broker"), "{error}");
        assert!(check(Path::Tcp, 2, 10 * MIB, &carried(10 * MIB, None)).is_ok());
    }

    #[test]
    fn bytes_by_both_ways_prove_neither() {
        let both = carried(10 * MIB, Some(10 * MIB));
        assert!(check(Path::Tcp, 2, 10 * MIB, &both).is_err());
        assert!(check(Path::Rings, 2, 10 * MIB, &both).is_err());
    }

    #[test]
    fn too_few_bytes_prove_nothing() {
        assert!(check(Path::MpiShm, 2, 1000, &carried(1000, Some(0))).is_err());
        assert!(check(Path::MpiShm, 2, 90_000, &carried(0, Some(0))).is_err());
        assert!(check(Path::Segments, 2, 90_000, &carried(0, Some(0))).is_ok());
        assert!(check(Path::Memory, 2, 0, &carried(1000, Some(0))).is_ok());
    }
}
