"""What statements speak of, in any room: descents, flows, paths, cones and sublevel sets, with points and premises."""
