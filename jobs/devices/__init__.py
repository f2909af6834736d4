"""Device profiles: measure a device, find its profile, and predict searches on it."""
