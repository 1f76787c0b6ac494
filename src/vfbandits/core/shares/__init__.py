"""Decide and learn on contexts that are secret-shared between two servers (experimental).

The mathematics is LinTS in whitened units: contexts x/√ridge, so that the prior of theta is N(0, I)
and Lambda⁻¹ = GG' with G = I at first.

    decide   w = theta + v·Gz,  scores Xw                       z: half of it drawn by each server
    reward   f = G'x,  q = f·f,  g = Gf,  c = 1/(1 + q + √(1 + q)),  h = (r − x·theta)/(1 + q)
             G ← G − g(cf)',    theta ← theta + hg              Potter's update

A number v is *masked*: m = v + λ with λ = λ_A + λ_B.  Both servers know m; A knows λ_A, B knows
λ_B, and only the dealer, who sees no message, knows λ.  A product needs no message (``sides``):
each server multiplies what it has, and the dealer has dealt the rest.  A product that is multiplied
again is masked again: the servers exchange their parts under fresh words once, and lose 45 of the
89 bits after the point that twice a product has.  Functions of q come from tables that are dealt
and used once (``function_table``); nobody sees q.

Rewards are not put into G one by one.  A window keeps the rows a = cf, g and h of its rewards, and
a fold brings them into G and theta when the window is full:

    Gz − Σ g_l (a_l·z)  replaces  Gz,        theta + Σ h_l g_l  replaces  theta.
"""
