"""Planning: graphs, costs, games, and the policies that make plans from them."""
