"""What the formats share: lines without their launcher's labels, times, failures, names."""
