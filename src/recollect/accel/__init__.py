"""Device code behind `core.dispatch`: each fast form equals a readable one."""
