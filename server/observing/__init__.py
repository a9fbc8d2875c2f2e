"""What a running server tells of itself: logs, metrics, traces."""
