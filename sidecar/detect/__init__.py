"""Pure detectors, one file each: history in, `Finding`, `Quiet` or `CannotTell` out. No IO, no clock."""
