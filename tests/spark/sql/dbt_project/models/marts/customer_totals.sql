select
    c.id as customer_id,
    c.name,
    count(o.order_id) as orders,
    coalesce(sum(o.amount), 0) as total
from {{ ref('customers') }} c
left join {{ ref('orders') }} o on o.customer_id = c.id and o.status <> 'GONE'
group by 1, 2
