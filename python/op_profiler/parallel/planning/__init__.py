"""What a plan is made of: graphs, costs, games, and the policies that make one."""
